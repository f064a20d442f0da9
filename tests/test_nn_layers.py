"""Every layer and function of `nn` beside PyTorch's: first values, text, results, gradients, state and errors.

A case is an expression, or a module `>>` an expression of that module `m`. It is evaluated with `torch` and with `autograd_nb as torch`, from the same seed.
"""

import warnings

import numpy as np
import pytest
from _compare import usual_processor

import autograd_nb

pytestmark = pytest.mark.needs("torch")

SETUP = """
nn, F = torch.nn, torch.nn.functional
torch.manual_seed(3)
x1 = torch.randn(2, 4, 10, requires_grad=True); x2 = torch.randn(2, 4, 7, 8, requires_grad=True); x3 = torch.randn(2, 4, 5, 6, 5, requires_grad=True)
u2 = torch.randn(4, 7, 8, requires_grad=True); r = torch.randn(5, 3, 4, requires_grad=True)
v = torch.randn(6, 4, requires_grad=True); v2 = torch.randn(6, 4, requires_grad=True); v3 = torch.randn(6, 4, requires_grad=True)
xe = torch.randn(2, 4, 6, 6, requires_grad=True)
c = torch.tensor([1, 0, 3, 2, 1, 3]); s = torch.tensor([1., -1., 1., -1., -1., 1.]); p = torch.rand(6, 4); idx = torch.tensor([[1, 2, 0], [4, 4, 3]])
torch.manual_seed(5)
"""

SPATIAL = r"""
nn.Conv1d(4,6,3) >> m(x1)
nn.Conv1d(4,6,3,stride=2,padding=1,dilation=2,groups=2,bias=False) >> m(x1)
nn.Conv2d(4,6,3) >> m(x2)
nn.Conv2d(4,6,3) >> m(u2)
nn.Conv2d(4,8,(3,2),stride=(2,1),padding=(1,2),dilation=(1,2),groups=4) >> m(x2)
nn.Conv2d(4,6,3,padding='same') >> m(x2)
nn.Conv2d(4,6,(4,3),padding='same',dilation=(1,2)) >> m(x2)
nn.Conv2d(4,6,3,padding='valid') >> m(x2)
nn.Conv2d(4,6,3,padding=1,padding_mode='reflect') >> m(x2)
nn.Conv2d(4,6,3,padding=(2,1),padding_mode='circular') >> m(x2)
nn.Conv2d(4,6,3,padding='same',padding_mode='replicate') >> m(x2)
nn.Conv2d(4,6,1) >> m(x2)
nn.Conv2d(4,6,1,stride=2) >> m(x2)
nn.LazyConv2d(6,3,1,0,1,2,False) >> m(x2)
nn.LazyConv1d(6,3,2,1,2,2,True,'circular') >> m(x1)
nn.LazyConvTranspose2d(6,3,2,1,1,2,False,1) >> m(x2)
type('Own',(nn.modules.conv._ConvNd,),dict(forward=lambda m,x:torch.nn.functional.conv1d(x,m.weight,m.bias)))(4,6,(3,),(1,),(0,),(1,),False,(0,),1,True,'zeros') >> m(x1)
type('Own',(nn.modules.conv._ConvNd,),{})(4,6,(3,),(1,),(0,),(1,),True,(0,),2,False,'zeros') >> (m.weight, m.transposed)
nn.SyncBatchNorm(4,bias=False) >> m(x2)
nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm2d(4,bias=False))) >> m(x2)
nn.AlphaDropout(0.5,True) >> (m(v.detach()), v)
nn.FeatureAlphaDropout(0.5,True) >> (m(v.detach()), v)
nn.Conv3d(4,2,(3,2,1),padding=1,stride=2) >> m(x3)
nn.ConvTranspose1d(4,6,3,stride=2,padding=1,output_padding=1) >> m(x1)
nn.ConvTranspose2d(4,6,4,2,1) >> m(x2)
nn.ConvTranspose2d(4,6,3,2,1) >> m(x2,output_size=[14,15])
nn.ConvTranspose2d(4,6,3,2,1,groups=2,dilation=2,bias=False) >> m(x2)
nn.ConvTranspose3d(4,2,3,stride=2) >> m(x3)
nn.MaxPool1d(2) >> m(x1)
nn.MaxPool1d(3,2,1,return_indices=True,ceil_mode=True) >> m(x1)
nn.MaxPool2d(2) >> m(x2)
nn.MaxPool2d(3,stride=2,padding=1,return_indices=True) >> m(x2)
nn.MaxPool2d((3,2),stride=1,dilation=2,ceil_mode=True) >> m(x2)
nn.MaxPool2d(2) >> m(u2)
nn.MaxPool3d(2,return_indices=True) >> m(x3)
nn.MaxPool3d((1,2,2),stride=(1,2,1),padding=(0,1,0),ceil_mode=True) >> m(x3)
nn.MaxUnpool2d(2,stride=2) >> m(*F.max_pool2d(xe,2,return_indices=True))
nn.MaxUnpool1d(2) >> m(*F.max_pool1d(x1,2,return_indices=True))
nn.MaxUnpool2d(2,stride=2) >> m(*F.max_pool2d(x2,2,return_indices=True),output_size=[7,8])
nn.AvgPool1d(3,2,1) >> m(x1)
nn.AvgPool2d(2) >> m(x2)
nn.AvgPool2d(3,2,1,ceil_mode=True,count_include_pad=False) >> m(x2)
nn.AvgPool2d(3,2,1,ceil_mode=True) >> m(x2)
nn.AvgPool2d(3,divisor_override=2) >> m(x2)
nn.AvgPool3d(2) >> m(x3)
nn.AdaptiveAvgPool1d(3) >> m(x1)
nn.AdaptiveAvgPool2d((3,5)) >> m(x2)
nn.AdaptiveAvgPool2d(1) >> m(x2)
nn.AdaptiveAvgPool2d((None,2)) >> m(x2)
nn.AdaptiveAvgPool3d((2,3,1)) >> m(x3)
nn.AdaptiveMaxPool1d(3) >> m(x1)
nn.AdaptiveMaxPool2d((3,5),return_indices=True) >> m(x2)
nn.AdaptiveMaxPool3d(2) >> m(x3)
nn.LPPool1d(2,3) >> m(x1)
nn.LPPool2d(2,2,stride=1) >> m(x2.abs()+.1)
nn.LPPool2d(1.2,(3,2),stride=(2,1)) >> m(x2.abs()+.1)
nn.BatchNorm1d(4) >> m(v)
nn.BatchNorm1d(4) >> m(x1)
nn.BatchNorm2d(4) >> m(x2)
nn.BatchNorm2d(4,affine=False,momentum=None) >> (m(x2),m(x2))
nn.BatchNorm2d(4,track_running_stats=False) >> (m(x2),m.eval()(x2))
nn.BatchNorm2d(4).eval() >> m(x2)
nn.BatchNorm3d(4,eps=1e-3,momentum=.3) >> m(x3)
nn.InstanceNorm1d(4) >> m(x1)
nn.InstanceNorm2d(4,affine=True) >> m(x2)
nn.InstanceNorm2d(4) >> m(u2)
nn.InstanceNorm2d(4,affine=True,track_running_stats=True) >> (m(x2),m.eval()(x2))
nn.InstanceNorm3d(4) >> m(x3)
nn.GroupNorm(2,4) >> m(x2)
nn.GroupNorm(4,4,affine=False) >> m(x1)
nn.GroupNorm(1,4) >> m(v)
nn.LayerNorm(8) >> m(x2)
nn.LayerNorm((7,8),eps=1e-3) >> m(x2)
nn.LayerNorm(8,bias=False) >> m(x2)
nn.LayerNorm(8,elementwise_affine=False) >> m(x2)
nn.RMSNorm(8) >> m(x2)
nn.RMSNorm((7,8),eps=1e-2) >> m(x2)
nn.LocalResponseNorm(3) >> m(x2)
nn.LocalResponseNorm(2,alpha=.1,beta=.5,k=2.) >> m(x1)
nn.ZeroPad2d(2) >> m(x2)
nn.ZeroPad1d((1,2)) >> m(x1)
nn.ConstantPad2d((1,0,-1,2),3.5) >> m(x2)
nn.ReflectionPad1d(2) >> m(x1)
nn.ReflectionPad2d((1,2,3,0)) >> m(x2)
nn.ReflectionPad3d(1) >> m(x3)
nn.ReplicationPad1d(3) >> m(x1)
nn.ReplicationPad2d((1,2,3,0)) >> m(x2)
nn.ReplicationPad3d(1) >> m(x3)
nn.CircularPad1d(2) >> m(x1)
nn.CircularPad2d((1,2,3,0)) >> m(x2)
nn.CircularPad3d(1) >> m(x3)
nn.Upsample(scale_factor=2) >> m(x2)
nn.Upsample(size=(3,5)) >> m(x2)
nn.Upsample(scale_factor=1.7) >> m(x1)
nn.Upsample(scale_factor=2,mode='bilinear') >> m(x2)
nn.Upsample(scale_factor=(1.5,2.3),mode='bilinear',align_corners=True) >> m(x2)
nn.Upsample(size=(3,20),mode='bicubic') >> m(x2)
nn.Upsample(scale_factor=2.5,mode='bicubic',align_corners=True) >> m(x2)
nn.Upsample(size=5,mode='linear') >> m(x1)
nn.Upsample(scale_factor=1.3,mode='trilinear') >> m(x3)
nn.UpsamplingNearest2d(scale_factor=2) >> m(x2)
nn.UpsamplingBilinear2d(scale_factor=2) >> m(x2)
F.interpolate(x2,scale_factor=.5,mode='area')
F.interpolate(x2,size=(3,3),mode='nearest-exact')
F.interpolate(x2,scale_factor=1.7,mode='nearest-exact')
F.interpolate(x2,scale_factor=1.7,mode='nearest',recompute_scale_factor=True)
F.interpolate(x2,scale_factor=1.7,mode='bilinear',recompute_scale_factor=True)
F.interpolate(x2,size=(3,4),mode='bilinear',antialias=True)
F.interpolate(x2,size=(3,12),mode='bicubic',antialias=True)
F.interpolate(x2,size=(3,12),mode='bicubic',antialias=True,align_corners=True)
F.interpolate(x2, size=(3, 4), mode='lanczos', antialias=True)
F.interpolate(x2, size=3, mode='lanczos')
F.interpolate(x2, size=3, mode='foo')
F.interpolate(x3,scale_factor=2)
nn.PixelShuffle(2) >> m(x2)
nn.PixelUnshuffle(2) >> m(xe)
nn.ChannelShuffle(2) >> m(x2)
nn.Fold((7,8),(2,2)) >> m(torch.arange(2*8*42.).reshape(2,8,42))
nn.Unfold((3,2),dilation=2,padding=1,stride=2) >> m(x2)
F.fold(F.unfold(x2,3,padding=1),(7,8),3,padding=1)
F.grid_sample(x2, torch.rand(2,3,4,2)*2.4-1.2, align_corners=False)
F.grid_sample(x2, torch.rand(2,3,4,2)*2.4-1.2, align_corners=True, padding_mode='border')
F.grid_sample(x2, torch.rand(2,3,4,2)*3-1.5, align_corners=False, padding_mode='reflection')
F.grid_sample(x2, torch.rand(2,3,4,2)*2.4-1.2, align_corners=False, mode='nearest')
F.grid_sample(x2, torch.rand(2,3,4,2)*2.4-1.2, align_corners=False, mode='bicubic')
F.grid_sample(x2, torch.rand(2,3,4,2)*2.4-1.2, align_corners=True, mode='bicubic', padding_mode='reflection')
F.grid_sample(x3, torch.rand(2,3,4,2,3)*2.4-1.2, align_corners=False)
F.grid_sample(torch.randn(2,3,4,5), F.affine_grid(torch.randn(2,2,3,requires_grad=True),[2,3,6,6],align_corners=False), align_corners=False)
F.affine_grid(torch.randn(2,3,4,requires_grad=True),[2,3,6,6,2],align_corners=True)
"""

OTHERS = r"""
nn.FractionalMaxPool2d(2,output_size=3) >> m(x2)
nn.FractionalMaxPool2d((2,3),output_ratio=.5,return_indices=True) >> m(x2)
nn.FractionalMaxPool3d(2,output_size=(2,3,3)) >> m(x3)
nn.FractionalMaxPool2d(2) >> m(x2)
nn.FractionalMaxPool2d(2,output_ratio=2) >> m(x2)
nn.FractionalMaxPool2d(4,output_size=7) >> m(x2)
nn.LinearCrossEntropyLoss(4,5) >> m(v,c)
nn.LinearCrossEntropyLoss(4,5,bias=True,label_smoothing=.1) >> m(v,c)
F.linear_cross_entropy(v,torch.ones(5,4),c)
nn.RNN(4,5) >> m(r)
nn.RNN(4,5,2,nonlinearity='relu',bidirectional=True) >> m(r, torch.ones(4,3,5))
nn.LSTM(4,5) >> m(r)
nn.LSTM(4,5,num_layers=2,bidirectional=True,batch_first=True) >> m(r)
nn.LSTM(4,5,2,proj_size=3,bidirectional=True) >> m(r)
nn.LSTM(4,5,2,proj_size=3,bias=False) >> m(r,(torch.ones(2,3,3),torch.ones(2,3,5)))
nn.LSTM(4,5,2,dropout=.5) >> m(r)
nn.LSTM(4,5) >> m(r[:,0])
nn.GRU(4,5) >> m(r)
nn.GRU(4,5,2,bias=False,bidirectional=True,batch_first=True) >> m(r)
nn.GRU(4,5) >> m(r, torch.ones(1,3,5))
nn.GRU(4,5,2,dropout=.3,bidirectional=True) >> m.eval()(r)
nn.GRU(4,5,bidirectional=True) >> (lambda o: (nn.utils.rnn.pad_packed_sequence(o[0]),o[1]))(m(nn.utils.rnn.pack_padded_sequence(r,[2,5,3],enforce_sorted=False)))
nn.LSTM(4,5,2,bidirectional=True) >> (lambda o: (nn.utils.rnn.pad_packed_sequence(o[0],batch_first=True,padding_value=-1.,total_length=7),o[1]))(m(nn.utils.rnn.pack_padded_sequence(r,torch.tensor([2,5,3]),enforce_sorted=False)))
nn.RNN(4,5) >> (lambda o: (o[0].data,o[0].batch_sizes,o[1]))(m(nn.utils.rnn.pack_padded_sequence(r,[5,3,3])))
nn.LSTM(4,5) >> m(torch.randn(5,3,3))
nn.LSTM(4,5) >> m(torch.randn(5,3,4,4))
nn.LSTM(4,5) >> m(r,(torch.ones(1,2,5),torch.ones(1,3,5)))
nn.LSTM(4,5) >> m(r,(torch.ones(1,3,5),torch.ones(1,2,5)))
nn.LSTM(4,5) >> m(r[:,0],(torch.ones(1,3,5),torch.ones(1,2,5)))
nn.GRU(4,5) >> m(r,torch.ones(1,2,5))
nn.GRU(4,5) >> m(r,torch.ones(1,5))
nn.GRU(4,5) >> m(r.double())
nn.RNN(4,5,nonlinearity='x') >> m(r)
nn.RNN(4,0) >> m(r)
nn.LSTM(4,5,proj_size=5) >> m(r)
nn.LSTM(4,5,dropout=2) >> m(r)
nn.RNNCell(4,5) >> m(v)
nn.RNNCell(4,5,nonlinearity='relu',bias=False) >> m(v,torch.ones(6,5))
nn.LSTMCell(4,5) >> m(v)
nn.LSTMCell(4,5) >> m(v,(torch.ones(6,5),torch.ones(6,5)))
nn.LSTMCell(4,5) >> m(v[0])
nn.GRUCell(4,5) >> m(v)
nn.GRUCell(4,5,bias=False) >> m(v,torch.ones(6,5))
nn.GRUCell(4,5) >> m(torch.ones(6,3))
nn.GRUCell(4,5) >> m(v,torch.ones(5,5))
nn.GRUCell(4,5) >> m(v,torch.ones(6,3))
nn.LSTMCell(4,5) >> m(r)
nn.MultiheadAttention(4,2) >> m(r,r,r)
nn.MultiheadAttention(4,2,batch_first=True) >> m(r,r,r,need_weights=False)
nn.MultiheadAttention(4,2) >> m(r,r,r,average_attn_weights=False)
nn.MultiheadAttention(4,2,bias=False) >> m(r,r[:3],r[:3])
nn.MultiheadAttention(4,2,kdim=3,vdim=5) >> m(r,torch.ones(4,3,3),torch.ones(4,3,5))
nn.MultiheadAttention(4,2,add_bias_kv=True,add_zero_attn=True) >> m(r,r,r)
nn.MultiheadAttention(4,2,add_bias_kv=True) >> m(r,r,r,attn_mask=torch.ones(5,5).triu(1).bool(),key_padding_mask=torch.tensor([[False]*5,[False]*4+[True],[False]*3+[True]*2]))
nn.MultiheadAttention(4,2) >> m(r,r,r,attn_mask=torch.randn(5,5),need_weights=False)
nn.MultiheadAttention(4,2) >> m(r,r,r,attn_mask=torch.randn(6,5,5),need_weights=False)
nn.MultiheadAttention(4,2) >> m(r,r,r,attn_mask=torch.zeros(5,5),is_causal=True,need_weights=False)
nn.MultiheadAttention(4,2,dropout=.5) >> m(r,r,r)
nn.MultiheadAttention(4,2,dropout=.5) >> m(r,r,r,need_weights=False)
nn.MultiheadAttention(4,2) >> m(r[:,0],r[:,0],r[:,0])
nn.MultiheadAttention(4,2) >> m(r,r,r,attn_mask=torch.zeros(4,5))
nn.MultiheadAttention(4,2) >> m(r,r,r,key_padding_mask=torch.zeros(5,3).bool())
nn.MultiheadAttention(4,3) >> m(r,r,r)
nn.MultiheadAttention(4,2) >> m(r,r[0],r)
F.scaled_dot_product_attention(r,r,r)
F.scaled_dot_product_attention(r,r,r,is_causal=True,scale=.3)
F.scaled_dot_product_attention(r*20,r,r,is_causal=True)
F.scaled_dot_product_attention(r,r,r,attn_mask=torch.randn(3,3))
F.scaled_dot_product_attention(r,r,r,attn_mask=torch.randn(3,3)>0)
F.scaled_dot_product_attention(x2.reshape(2,4,7,8),x2[:,:2],x2[:,:2],enable_gqa=True)
F.scaled_dot_product_attention(r,r,r,attn_mask=torch.zeros(3,3),is_causal=True)
F.scaled_dot_product_attention(r[0,0],r,r)
F.scaled_dot_product_attention(r,r.double(),r)
nn.TransformerEncoderLayer(4,2,8,dropout=0.) >> m(r)
nn.TransformerEncoderLayer(4,2,8,dropout=.1,batch_first=True,norm_first=True,activation='gelu') >> m(r)
nn.TransformerEncoderLayer(4,2,8,dropout=.1,bias=False) >> m.eval()(r,src_mask=torch.ones(5,5).triu(1).bool())
nn.TransformerEncoder(nn.TransformerEncoderLayer(4,2,8,dropout=0.1),2,norm=nn.LayerNorm(4)) >> m(r,mask=nn.Transformer.generate_square_subsequent_mask(5))
nn.TransformerEncoder(nn.TransformerEncoderLayer(4,2,8,dropout=0.,batch_first=True),2) >> m(r,src_key_padding_mask=torch.tensor([[False,False,True]]*5))
nn.TransformerDecoderLayer(4,2,8,dropout=0.) >> m(r,torch.ones(2,3,4))
nn.TransformerDecoder(nn.TransformerDecoderLayer(4,2,8,dropout=0.1,norm_first=True),2) >> m(r,torch.randn(2,3,4),tgt_mask=nn.Transformer.generate_square_subsequent_mask(5))
nn.Transformer(4,2,1,2,8,dropout=0.1) >> m(r,torch.randn(2,3,4))
nn.Transformer(4,2,1,2,8,dropout=0.1,batch_first=True) >> m(r,torch.randn(5,2,4))
nn.Transformer(4,2,1,2,8,dropout=0.1) >> m(r,torch.randn(2,2,4))
nn.CTCLoss() >> m(F.log_softmax(torch.randn(12,3,6,requires_grad=True),2),torch.tensor([[1,2,2,3],[1,5,4,4],[2,0,0,0]]),torch.tensor([12,10,5]),torch.tensor([4,3,1]))
nn.CTCLoss(blank=2,reduction='none',zero_infinity=True) >> m(F.log_softmax(torch.randn(5,2,6,requires_grad=True),2),torch.tensor([1,1,1,1,3,4]),torch.tensor([5,5]),torch.tensor([4,2]))
nn.CTCLoss(reduction='sum') >> m(F.log_softmax(torch.randn(5,2,6,requires_grad=True),2),torch.tensor([1,1,1,1,3,4]),torch.tensor([5,5]),torch.tensor([3,3]))
nn.CTCLoss() >> m(F.log_softmax(torch.randn(12,6,requires_grad=True),1),torch.tensor([1,2,3]),torch.tensor([12]),torch.tensor([3]))
nn.MultiMarginLoss() >> m(v,c)
nn.MultiMarginLoss(p=2,margin=.5,weight=torch.tensor([1.,2.,.5,1.]),reduction='none') >> m(v,c)
nn.MultiMarginLoss() >> m(v[0],torch.tensor(2))
nn.MultiMarginLoss() >> m(v,c[:3])
nn.MultiLabelMarginLoss() >> m(v[:2],torch.tensor([[3,0,-1,1],[1,-1,0,0]]))
nn.MultiLabelMarginLoss(reduction='none') >> m(v[0],torch.tensor([3,0,-1,1]))
nn.MultiLabelSoftMarginLoss(weight=torch.tensor([1.,2.,.5,1.])) >> m(v,p.round())
nn.TripletMarginWithDistanceLoss(distance_function=nn.PairwiseDistance(),swap=True) >> m(v,v2,v3)
nn.TripletMarginLoss(margin=.5,p=1,swap=True,reduction='none') >> m(v,v2,v3)
nn.CosineEmbeddingLoss(margin=.2) >> m(v,v2,s)
nn.CosineEmbeddingLoss(reduction='none') >> m(v,v2,s)
nn.CosineEmbeddingLoss() >> m(v[0],v2[0],torch.tensor(1.))
nn.CosineEmbeddingLoss() >> m(v,v2,s.unsqueeze(1))
nn.HingeEmbeddingLoss(margin=.3) >> m(v[:,0],s)
nn.MarginRankingLoss(.1) >> m(v[:,0],v2[:,0],s)
nn.SoftMarginLoss() >> m(v[:,0],s)
nn.KLDivLoss(reduction='batchmean') >> m(F.log_softmax(v,1),F.softmax(v2,1))
nn.KLDivLoss(log_target=True) >> m(F.log_softmax(v,1),F.log_softmax(v2,1))
nn.GaussianNLLLoss(full=True) >> m(v,v2,p)
nn.PoissonNLLLoss(full=True) >> m(v,p*5)
nn.PoissonNLLLoss(log_input=False) >> m(p.clone().requires_grad_(),p*5)
nn.AdaptiveLogSoftmaxWithLoss(4,10,[3,6],div_value=2.) >> tuple(m(v,c))
nn.AdaptiveLogSoftmaxWithLoss(4,10,[3,6],div_value=2.) >> (m.log_prob(v),m.predict(v))
nn.NLLLoss(weight=torch.tensor([1.,2.,.5,1.]),ignore_index=1) >> m(F.log_softmax(v,1),c)
nn.CrossEntropyLoss(label_smoothing=.1) >> m(v,c)
nn.CrossEntropyLoss(weight=torch.tensor([1.,2.,.5,1.]),label_smoothing=.1,ignore_index=1) >> m(v,c)
nn.CrossEntropyLoss(weight=torch.tensor([1.,2.,.5,1.]),label_smoothing=.1) >> m(v,F.softmax(v2,1))
nn.CrossEntropyLoss(reduction='none') >> m(x2,torch.ones(2,7,8).long())
nn.CrossEntropyLoss() >> m(v,c+3)
nn.CrossEntropyLoss() >> m(v,c[:4])
nn.CrossEntropyLoss() >> m(v,c.float())
nn.BCELoss() >> m(v,p)
nn.BCELoss(weight=p) >> m(torch.sigmoid(v),p)
nn.BCELoss() >> m(torch.sigmoid(v),p[:3])
nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.,2.,3.,4.])) >> m(v,p)
nn.BCEWithLogitsLoss() >> m(v,p[:3])
nn.Embedding(6,3,max_norm=1.) >> m(idx)
nn.Embedding(6,3,padding_idx=2) >> m(idx)
nn.Embedding(6,3,scale_grad_by_freq=True) >> m(idx)
nn.Embedding.from_pretrained(torch.eye(6),freeze=False) >> m(idx)
nn.Embedding(6,3) >> m(idx+4)
nn.Embedding(6,3) >> m(idx.float())
nn.EmbeddingBag(6,3) >> m(idx)
nn.EmbeddingBag(6,3,mode='sum') >> m(idx,per_sample_weights=torch.ones(2,3)*.5)
nn.EmbeddingBag(6,3,mode='max',padding_idx=4) >> m(idx)
nn.EmbeddingBag(6,3,padding_idx=4) >> m(idx)
nn.EmbeddingBag(6,3,include_last_offset=True) >> m(idx.reshape(-1),torch.tensor([0,2,2,6]))
nn.EmbeddingBag(6,3) >> m(idx.reshape(-1),torch.tensor([0,4]))
nn.EmbeddingBag(6,3) >> m(idx,torch.tensor([0,4]))
nn.EmbeddingBag(6,3) >> m(idx.reshape(-1))
nn.Bilinear(4,4,3) >> m(v,v2)
nn.Bilinear(4,4,3,bias=False) >> m(r,r)
nn.Bilinear(4,5,3) >> m(v,v2)
nn.CosineSimilarity(dim=1) >> m(v,v2)
nn.PairwiseDistance(p=1,keepdim=True) >> m(v,v2)
F.pdist(v)
nn.Linear(4,3) >> m(torch.randn(2,5))
nn.Dropout(.4) >> m(x2)
nn.Dropout1d(.4) >> m(x1)
nn.Dropout2d(.4) >> m(x2)
nn.Dropout3d(.4) >> m(x3)
nn.AlphaDropout(.4) >> m(x2)
nn.FeatureAlphaDropout(.4) >> m(x2)
nn.Dropout(.4) >> m(x2.transpose(1,3))
nn.Dropout(1.5) >> m(x2)
nn.RReLU() >> m(x2)
nn.RReLU().eval() >> m(x2)
nn.Softmax2d() >> m(x2)
nn.PReLU(4) >> m(x2)
nn.PReLU() >> m(x2)
nn.PReLU(3) >> m(x2)
nn.GLU(1) >> m(x2)
nn.Hardtanh(-.5,.4) >> m(x2)
nn.Softshrink(.3) >> m(x2)
nn.Hardshrink() >> m(x2)
nn.Threshold(.1,20) >> m(x2)
nn.SELU() >> m(x2)
nn.CELU(.5) >> m(x2)
nn.Mish() >> m(x2)
nn.Hardswish() >> m(x2)
nn.Hardsigmoid() >> m(x2)
nn.ReLU6() >> m(x2*4)
nn.Flatten(2) >> m(x2)
nn.Unflatten(1,(2,2)) >> m(x2)
nn.Sequential(nn.Conv2d(4,6,3,padding=1),nn.BatchNorm2d(6),nn.ReLU(inplace=True),nn.MaxPool2d(2),nn.Flatten(),nn.LazyLinear(5)) >> m(x2)
nn.LazyConv2d(5,3) >> m(x2)
nn.LazyBatchNorm2d() >> m(x2)
nn.LazyConvTranspose1d(5,3,bias=False) >> m(x1)
nn.ParameterList([torch.randn(3),torch.randn(2,2)]) >> list(m)
nn.ParameterDict({'b':torch.randn(3),'a':torch.randn(2,2)}) >> dict(m.items())
nn.ModuleDict({'b':nn.Linear(4,2),'a':nn.ReLU()}) >> m['a'](m['b'](v))
nn.ModuleList([nn.Linear(4,4) for i in range(3)]) >> m[2](m[0](v))
nn.Conv2d(3,4,3) >> m(x2)
nn.Conv2d(4,4,9) >> m(x2)
nn.Conv2d(4,4,3) >> m(x1)
nn.Conv2d(4,4,3) >> m(x1[0])
nn.Conv2d(4,4,3) >> m(x2.double())
nn.Conv2d(4,4,3,bias=False) >> m(x2.double())
nn.Conv2d(4,6,3,groups=4) >> m(x2)
nn.Conv2d(4,6,3,stride=2,padding='same') >> m(x2)
nn.ConvTranspose2d(4,6,3,2,1) >> m(x2,output_size=[9,9])
nn.ConvTranspose2d(4,6,3,output_padding=1) >> m(x2)
nn.MaxPool2d(9) >> m(x2)
nn.MaxPool2d(2,padding=2) >> m(x2)
nn.MaxPool2d(2) >> m(v)
nn.AvgPool2d(9) >> m(x2)
nn.BatchNorm2d(3) >> m(x2)
nn.BatchNorm2d(4) >> m(x1)
nn.BatchNorm1d(4) >> m(v[:1])
nn.InstanceNorm1d(4) >> m(x1[...,:1])
nn.GroupNorm(3,4) >> m(x2)
nn.GroupNorm(2,4) >> m(torch.ones(2,3,4))
nn.LayerNorm(7) >> m(x2)
nn.ReflectionPad2d(9) >> m(x2)
nn.Upsample() >> m(x2)
nn.Upsample(scale_factor=2,mode='bilinear') >> m(x1)
nn.PixelShuffle(3) >> m(x2)
nn.PixelUnshuffle(3) >> m(x2)
F.gumbel_softmax(v,hard=True)
F.gumbel_softmax(v)
F.normalize(v)
F.normalize(v,p=1,dim=0)
F.one_hot(c,5)
F.local_response_norm(v,2)
F.relu_(v.clone())
F.leaky_relu_(v.clone(),.2)
F.hardtanh(v,1,-1)
F.multi_head_attention_forward(r,r,r,4,2,torch.eye(12,4),None,None,None,False,0.,torch.eye(4),None)
"""

HELPERS = r"""
nn.utils.parametrizations.weight_norm(nn.Linear(4,3)) >> m(v)
nn.utils.parametrizations.weight_norm(nn.Conv2d(4,3,2),dim=None) >> m(x2)
nn.utils.parametrizations.spectral_norm(nn.Linear(4,3)) >> (m(v),m.eval()(v))
nn.utils.parametrizations.spectral_norm(nn.ConvTranspose2d(4,3,2)) >> m(x2)
nn.utils.parametrizations.orthogonal(nn.Linear(4,4)) >> m(v)
nn.utils.parametrizations.orthogonal(nn.Linear(4,4),orthogonal_map='cayley') >> m(v)
nn.utils.parametrizations.orthogonal(nn.Linear(4,4),orthogonal_map='householder') >> m(v)
nn.utils.parametrizations.orthogonal(nn.Linear(4,4),orthogonal_map='x') >> m(v)
nn.utils.weight_norm(nn.Linear(4,3)) >> m(v)
nn.utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(4,3))) >> m(v)
nn.utils.spectral_norm(nn.Linear(4,3)) >> m(v)
nn.utils.spectral_norm(nn.Conv2d(4,3,2),n_power_iterations=3) >> m(x2)
nn.utils.remove_spectral_norm(nn.utils.spectral_norm(nn.Linear(4,3))) >> m(v)
nn.utils.remove_spectral_norm(nn.Linear(4,3)) >> m(v)
nn.utils.prune.l1_unstructured(nn.Linear(4,3),'weight',.5) >> m(v)
nn.utils.prune.ln_structured(nn.Linear(4,3),'weight',1,2,0) >> m(v)
nn.utils.prune.ln_structured(nn.Conv2d(4,6,3),'weight',.5,1,1) >> m(x2)
nn.utils.prune.remove(nn.utils.prune.l1_unstructured(nn.Linear(4,3),'weight',.5),'weight') >> m(v)
nn.utils.prune.l1_unstructured(nn.Linear(4,3),'weight',1.5) >> m(v)
nn.utils.prune.l1_unstructured(nn.Linear(4,3),'weight',50) >> m(v)
nn.utils.fuse_conv_bn_eval(nn.Conv2d(4,3,3).eval(),nn.BatchNorm2d(3).eval()) >> m(x2)
nn.AdaptiveLogSoftmaxWithLoss(4,10,[3,6],div_value=2.) >> tuple(m(v,c))
nn.utils.parameters_to_vector(nn.Linear(2,2).parameters())
nn.utils.rnn.pad_sequence([v[:2],v[:4]],padding_value=2.,batch_first=True)
nn.utils.rnn.pad_sequence([v[:2],v[:4]],padding_side='left')
nn.utils.rnn.pack_padded_sequence(r,[2,5,3])
nn.utils.rnn.pack_padded_sequence(r,[5,3,0])
nn.utils.rnn.pack_padded_sequence(r,[5,3])
nn.utils.rnn.pack_sequence([v[:4],v[:2]]).data
torch.conv2d(x2,torch.ones(3,4,2,2))
torch.conv1d(x1,torch.ones(3,4,2),padding='same')
torch.max_pool2d(x2,2)
torch.avg_pool1d(x1,2)
torch.layer_norm(x2,(8,))
torch.batch_norm(x2,None,None,None,None,True,.1,1e-5,False)
torch.group_norm(x2,2)
torch.instance_norm(x2,None,None,None,None,True,.1,1e-5,False)
torch.dropout(x2,.5,True)
torch.alpha_dropout(x2,.5,True)
torch.embedding(torch.eye(6),idx)
torch.bilinear(v,v2,torch.ones(3,4,4),None)
torch.pixel_shuffle(x2,2)
torch.rms_norm(x2,(8,))
torch.native_layer_norm(x2,(8,),None,None,1e-5)
torch.conv_transpose2d(x2,torch.ones(4,3,2,2))
torch.adaptive_avg_pool1d(x1,2)
torch.kl_div(v,v2)
torch.lstm_cell(v,(torch.ones(6,3),torch.ones(6,3)),torch.ones(12,4),torch.ones(12,3))
torch.gru_cell(v,torch.ones(6,3),torch.ones(9,4),torch.ones(9,3))
torch.rrelu(v)
torch.celu_(v.clone())
torch.ctc_loss(F.log_softmax(torch.randn(12,2,6),2),torch.tensor([[1,2],[3,4]]),torch.tensor([12,10]),torch.tensor([2,1]))
torch.cosine_embedding_loss(v,v2,s)
torch.triplet_margin_loss(v,v2,v3)
torch.margin_ranking_loss(v[:,0],v2[:,0],s)
torch.hinge_embedding_loss(v[:,0],s)
torch.poisson_nll_loss(v,p,True,False,1e-8,1)
torch.binary_cross_entropy_with_logits(v,p)
torch.channel_shuffle(x2,2)
torch.pixel_unshuffle(xe,2)
torch.feature_dropout(x2,.5,True)
torch.convolution(x2,torch.ones(3,4,2,2),None,[1,1],[0,0],[1,1],False,[0,0],1)
torch.conv_tbc(r,torch.ones(2,4,3),torch.ones(3),1)
torch.embedding_bag(torch.eye(6),idx.reshape(-1),torch.tensor([0,3]))[0]
torch.grid_sampler(x2,torch.rand(2,3,4,2),0,0,False)
torch.norm_except_dim(v,2,0)
torch.rnn_tanh_cell(v,torch.ones(6,3),torch.ones(3,4),torch.ones(3,3))
"""


def tensors(value, torch):
    "All tensors in nested tuples, lists and dictionaries."
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors(v, torch)] if isinstance(value, (tuple, list)) else []


def evaluate(case, torch):
    "The text of the module, results, gradients of all leaves and parameters, and the state afterwards."
    scope = {"torch": torch, "np": np}
    exec(SETUP, scope)
    made, _, expression = case.rpartition(" >> ")
    module = scope["m"] = eval(made, scope) if made else None
    text = repr(module) if made else ""
    outs = tensors(eval(expression, scope), torch)
    leaves = {name: value for name, value in scope.items() if isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad}
    if made:
        leaves.update({f"m.{name}": value for name, value in module.named_parameters()})
    grads = {}
    differentiable = [o for o in outs if o.requires_grad]
    if differentiable:
        torch.manual_seed(9)
        total = sum((o * torch.randn(o.shape)).sum() for o in differentiable)
        found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        grads = {name: g.detach().numpy() for name, g in zip(leaves, found) if g is not None}
    state = {name: value.detach().numpy() for name, value in module.state_dict().items()} if made and hasattr(module, "state_dict") else {}
    return text, {str(i): o.detach().numpy() for i, o in enumerate(outs)}, grads, state


def lines(*texts):
    return [line for text in texts for line in text.strip().splitlines()]


@pytest.mark.parametrize("case", lines(SPATIAL, OTHERS, HELPERS))
def test_same_as_pytorch(case):
    import torch
    import torch.nn.utils.prune

    def run(library):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return evaluate(case, library)
            except Exception as error:
                return error

    theirs, ours = run(torch), run(autograd_nb)
    if isinstance(theirs, Exception) or isinstance(ours, Exception):
        assert isinstance(ours, type(theirs)), f"{ours!r} instead of {theirs!r}"
        start = str(theirs)[:60]
        assert str(ours).startswith(start)
        return
    assert ours[0] == theirs[0]
    for found, expected in zip(ours[1:], theirs[1:]):
        assert list(found) == list(expected)
        for name in expected:
            assert found[name].shape == expected[name].shape and found[name].dtype == expected[name].dtype
            np.testing.assert_allclose(found[name], expected[name], rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("align_corners", [True, False])
def test_images_read_at_their_own_pixels(align_corners):
    "Where nothing is moved, every place is a kink; the side on which the gradient is taken is PyTorch's."
    import torch

    for size in ((2, 1, 7, 9), (1, 3, 28, 28), (1, 1, 5, 33)):
        found = []
        image = np.random.default_rng(0).standard_normal(size).astype(np.float32)
        for t in (torch, autograd_nb):
            theta = t.eye(3)[:2].repeat(size[0], 1, 1).requires_grad_()
            grid = t.nn.functional.affine_grid(theta, size, align_corners=align_corners)
            out = t.nn.functional.grid_sample(t.tensor(image), grid, align_corners=align_corners)
            found.append((grid.detach().numpy(), *(g.numpy() for g in t.autograd.grad(out.sum(), (grid, theta)))))
        if not usual_processor():  # a last digit moves a place to the other side of its kink
            np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-6, atol=1e-7)
            continue
        np.testing.assert_array_equal(found[1][0], found[0][0])
        for ours, theirs in zip(found[1][1:], found[0][1:]):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_linspace_to_the_bit():
    import torch

    for n in (1, 2, 5, 28, 100, 1001):
        for ends in ((-1, 1), (0, 0.3), (5.0, -2.0)):
            for dtype in ("float32", "float64"):
                theirs, ours = (t.linspace(*ends, n, dtype=getattr(t, dtype)).numpy() for t in (torch, autograd_nb))
                if usual_processor():
                    np.testing.assert_array_equal(ours, theirs)
                else:
                    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


def test_names_of_pytorchs_files():
    "Base classes and helpers are found where programs import them from."
    import importlib

    for module, names in {
        "conv": "_ConvNd Conv2d LazyConv1d", "batchnorm": "_BatchNorm _NormBase BatchNorm1d SyncBatchNorm", "instancenorm": "_InstanceNorm InstanceNorm2d", "linear": "Linear Identity Bilinear", "sparse": "Embedding EmbeddingBag",
        "dropout": "Dropout Dropout2d", "normalization": "LayerNorm GroupNorm RMSNorm LocalResponseNorm CrossMapLRN2d", "pooling": "MaxPool2d AdaptiveAvgPool2d _MaxPoolNd _AvgPoolNd _MaxUnpoolNd _AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _LPPoolNd", "padding": "ReflectionPad2d ZeroPad2d", "upsampling": "Upsample",
        "flatten": "Flatten Unflatten", "fold": "Fold Unfold", "distance": "CosineSimilarity", "pixelshuffle": "PixelShuffle", "adaptive": "AdaptiveLogSoftmaxWithLoss", "loss": "_Loss _WeightedLoss MSELoss",
        "utils": "_single _pair _triple _quadruple _ntuple consume_prefix_in_state_dict_if_present", "module": "Module", "container": "Sequential", "rnn": "RNNBase LSTM", "activation": "ReLU", "transformer": "Transformer",
    }.items():  # fmt: skip
        found = importlib.import_module(f"autograd_nb.nn.modules.{module}")
        assert all(hasattr(found, name) for name in names.split()), module
    pooling = importlib.import_module("autograd_nb.nn.modules.pooling")
    for name in "MaxPool AvgPool MaxUnpool AdaptiveAvgPool AdaptiveMaxPool LPPool".split():
        base = getattr(pooling, f"_{name}Nd")
        assert all(issubclass(getattr(pooling, f"{name}{n}d"), base) for n in (1, 2, 3)), name


TOLD_ELSEWHERE = {"ChannelShuffle", "LinearCrossEntropyLoss", "LinearCrossEntropyOptions", "Module", "MultiheadAttention"}


def test_every_layer_stands_in_the_file_where_pytorch_has_it_and_below_the_same_classes():
    "Programs look at both: `type(layer).__module__`, and `isinstance(layer, _ConvNd)`."
    import torch

    names = [n for n in dir(torch.nn) if isinstance(getattr(torch.nn, n), type) and hasattr(autograd_nb.nn, n)]
    assert len(names) > 150
    for name in names:
        ours, theirs = (getattr(t.nn, name) for t in (autograd_nb, torch))
        if name not in TOLD_ELSEWHERE:
            assert ours.__module__.partition(".")[2] == theirs.__module__.partition(".")[2], name
        assert {b.__name__ for b in theirs.__mro__} <= {b.__name__ for b in ours.__mro__} | {"Generic"}, name


CALLS = {
    "made of nothing": lambda kind: kind(),
    "made with an unknown name": lambda kind: kind(nonsense=1),
    "made of too much": lambda kind: kind(*range(1, 30)),
    "called with nothing": lambda kind: kind.forward(object.__new__(kind)),
    "called with an unknown name": lambda kind: kind.forward(object.__new__(kind), nonsense=1),
}
# recurrent layers are told here by their own names, and batch norms by their base's; what has no `forward` says so in any case
OWN_WORDS = {"GRU", "LSTM", "RNN", "RNNBase", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "DataParallel", "Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "RNNCellBase"}


@pytest.mark.parametrize("call", CALLS)
def test_words_for_wrong_calls_of_every_layer(call):
    import torch

    def said(kind):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                CALLS[call](kind)
            except Exception as error:
                return f"{type(error).__name__}: {error}"

    names = [n for n in dir(torch.nn) if isinstance(getattr(torch.nn, n), type) and issubclass(getattr(torch.nn, n), torch.nn.Module)]
    pairs = {n: (said(getattr(torch.nn, n)), said(getattr(autograd_nb.nn, n))) for n in names if n not in OWN_WORDS and hasattr(autograd_nb.nn, n)}
    assert len(pairs) > 130 and sum(theirs is not None for theirs, _ in pairs.values()) > 50
    assert {n: p for n, p in pairs.items() if p[0] != p[1]} == {}


def test_settings_and_signatures_of_every_layer():
    "Those of recurrent layers are written out here. Each is a class with a source, not made by a function."
    import inspect

    import torch

    for name in dir(torch.nn):
        theirs, ours = getattr(torch.nn, name), getattr(autograd_nb.nn, name, None)
        if isinstance(theirs, type) and issubclass(theirs, torch.nn.Module) and ours is not None:
            wanted, found = (list(inspect.signature(kind.__init__).parameters) for kind in (theirs, ours))
            assert wanted == found or wanted == ["self", "args", "kwargs"], name
            constants = (set(getattr(kind, "__constants__", ())) for kind in (theirs, ours))
            assert set.__le__(*constants), name
            assert f"class {name}" in inspect.getsource(ours), name


@pytest.mark.parametrize("size", [3, 4, 5])
def test_cross_map_norm(size):
    "PyTorch's values; the gradient is that of the values, which PyTorch's is not."
    import torch

    x = np.random.default_rng(0).standard_normal((2, 7, 3, 2))
    theirs, ours = (t.nn.CrossMapLRN2d(size, alpha=0.5, k=2) for t in (torch, autograd_nb))
    np.testing.assert_allclose(ours(autograd_nb.tensor(x)).numpy(), theirs(torch.tensor(x)).numpy(), rtol=1e-10)
    assert repr(ours) == repr(theirs)
    assert autograd_nb.autograd.gradcheck(ours, autograd_nb.tensor(x[:1, :, :1], requires_grad=True))
