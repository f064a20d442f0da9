"""`nn.Module`, containers, state, hooks, first values and helpers: the same program prints the same under both libraries."""

import pytest
from _compare import assert_same_output

import autograd_nb

pytestmark = pytest.mark.needs("torch")

PROGRAMS = r"""
# state dict errors
torch.manual_seed(0)
m=nn.Sequential(nn.Linear(2,3),nn.BatchNorm1d(3),nn.Linear(3,1))
sd=m.state_dict(); print(list(sd), sd._metadata)
attempt(m.load_state_dict,{})
sd2=dict(sd); sd2['foo']=torch.ones(1); attempt(m.load_state_dict,sd2); print(m.load_state_dict(sd2,strict=False))
sd3=dict(sd); del sd3['0.weight']; sd3['2.bias']=torch.ones(4); attempt(m.load_state_dict,sd3); attempt(m.load_state_dict,sd3,strict=False)
print(m.load_state_dict(sd)); attempt(m.load_state_dict,3); sd4=dict(sd); sd4['0.weight']=3; attempt(m.load_state_dict,sd4)

---

# assign
m=nn.Linear(2,2); sd={'weight':torch.ones(2,2,dtype=torch.float64),'bias':nn.Parameter(torch.zeros(2))}
print(m.load_state_dict(sd,assign=True), m.weight.dtype, type(m.weight).__name__, m.bias is sd['bias'], m.weight.requires_grad)

---

# registering errors
m=nn.Module(); attempt(m.register_parameter,'a.b',None); attempt(m.register_parameter,'',None); attempt(m.register_parameter,3,None); attempt(m.register_parameter,'x',torch.ones(1)); attempt(m.register_buffer,'a.b',None); attempt(m.register_buffer,'x',3); attempt(m.register_buffer,5,None)
attempt(m.add_module,'a.b',nn.Linear(1,1)); attempt(m.add_module,'',nn.Linear(1,1)); attempt(m.add_module,'x',3); attempt(m.add_module,3,nn.Linear(1,1)); m.x=1; attempt(m.register_buffer,'x',torch.ones(1)); attempt(m.register_parameter,'x',None); attempt(m.add_module,'x',nn.Linear(1,1))
p=nn.Parameter(torch.ones(1)); attempt(m.register_parameter,'y',(p*2)); m.p=p; attempt(setattr,m,'p',3); attempt(setattr,m,'p',torch.ones(1)); m.p=None; print(m.p); m.q=nn.Linear(1,1); attempt(setattr,m,'q',3); m.q=None; print(m.q)
m.register_buffer('b',torch.ones(1)); attempt(setattr,m,'b',3); m.b=torch.zeros(2); print(m.b, list(m._buffers)); attempt(getattr,m,'zz'); attempt(delattr,m,'zz'); del m.b; print(list(m._buffers))

---

# no super init
class M(nn.Module):
    def __init__(self): self.l=nn.Linear(1,1)
attempt(M)
class M(nn.Module):
    def __init__(self): self.p=nn.Parameter(torch.ones(1))
attempt(M)
class M(nn.Module):
    def __init__(self): self.register_buffer('p',torch.ones(1))
attempt(M)
class M(nn.Module): pass
attempt(M(),1); attempt(nn.Module,3); attempt(nn.Module,x=3)

---

# named stuff
l=nn.Linear(1,1); m=nn.Sequential(l,nn.Sequential(l,nn.ReLU()),nn.BatchNorm1d(1))
print([n for n,_ in m.named_modules()],[n for n,_ in m.named_modules(remove_duplicate=False)],[n for n,_ in m.named_parameters()],[n for n,_ in m.named_parameters(remove_duplicate=False)],[n for n,_ in m.named_buffers(prefix='z')],[n for n,_ in m.named_children()],[n for n,_ in m.named_parameters('pre',recurse=False)], list(m.state_dict()), len(list(m.modules())))
attempt(m.get_submodule,'1.1'); attempt(m.get_submodule,'1.7'); attempt(m.get_submodule,'0.weight'); attempt(m.get_parameter,'0.weight'); attempt(m.get_parameter,'0.foo'); attempt(m.get_parameter,'2.running_mean'); attempt(m.get_buffer,'2.running_mean'); attempt(m.get_buffer,'0.weight'); attempt(m.get_submodule,'')

---

# repr
class M(nn.Module):
    def __init__(self):
        super().__init__(); self.a=nn.Linear(1,2); self.b=nn.ModuleList([nn.Linear(1,1),nn.Linear(1,1),nn.ReLU()]); self.c=nn.ModuleDict({'x':nn.Tanh()}); self.d=nn.ParameterList([torch.ones(2),torch.ones(1,3)]); self.e=nn.ParameterDict({'k':torch.ones(2)}); self.f=nn.Sequential()
    def extra_repr(self): return 'hello\nworld'
print(M()); print(nn.Parameter(torch.ones(2))); print([nn.Parameter(torch.ones(1))]); print(nn.ModuleList([nn.ModuleList([nn.ReLU()]*3)]*2)); print(nn.Buffer(torch.ones(2)), isinstance(nn.Buffer(torch.ones(1)),nn.Buffer), isinstance(torch.ones(1),nn.Buffer), isinstance(nn.Parameter(torch.ones(1)),nn.Parameter), isinstance(torch.ones(1),nn.Parameter))

---

# Sequential list methods
a,b,c=nn.Linear(1,1),nn.ReLU(),nn.Tanh()
s=nn.Sequential(a,b); s.append(c); print(len(s), s[-1], s[0:2], s[1:]); s.insert(1,nn.Sigmoid()); print(s); del s[0]; print(s); print(s.pop(0)); print(s); s[0]=nn.ELU(); print(s); attempt(s.__getitem__,7); attempt(s.__setitem__,9,a); attempt(s.__delitem__,9); s+=nn.Sequential(a); print(s, s*2, 2*s); attempt(lambda: s*0); attempt(lambda: s*'a'); attempt(lambda: s+3); s.extend([b,c]); print(s); del s[1:3]; print(s); attempt(s.insert,20,a); attempt(s.append,3); attempt(nn.Sequential,3)
from collections import OrderedDict
s=nn.Sequential(OrderedDict(x=a,y=b)); print(s, s.x is a, s[0:1]); s.append(c); print(s); print(a in s, len(list(s)), s==s); del s[0]; print(s)

---

# ModuleList
a,b,c=nn.Linear(1,1),nn.ReLU(),nn.Tanh()
l=nn.ModuleList([a,b]); l.append(c); l+= [a]; print(l, len(l), l[-1] is a, l[1:3], c in l); l.insert(0,c); print(l); l.extend(nn.ModuleList([b])); del l[0]; print(l); print(l.pop(1)); print(l+[c]); attempt(l.extend,3); attempt(l.__getitem__,50); attempt(l,1); attempt(l.append,3); l[0]=c; print(l); del l[1:]; print(l)

---

# ModuleDict
d=nn.ModuleDict({'a':nn.ReLU(),'b':nn.Tanh()}); d['c']=nn.ELU(); print(d, len(d), list(d.keys()), 'a' in d, list(d), [k for k,v in d.items()], d.pop('a')); attempt(d.__getitem__,'zz'); d.update([('x',nn.ReLU())]); d.update({'y':nn.ReLU()}); print(d); attempt(d.update,3); attempt(d.update,[3]); attempt(d.update,[(1,)]); attempt(d.__setitem__,3,nn.ReLU()); attempt(d.__setitem__,'k',3); d.clear(); print(d); attempt(nn.ModuleDict,{'keys':nn.ReLU()}); del_d=nn.ModuleDict({'a':nn.ReLU()}); del del_d['a']; print(del_d)

---

# ParameterList / Dict
p=nn.ParameterList([torch.ones(1),nn.Parameter(torch.ones(2))]); p.append(torch.zeros(3)); p+= [torch.ones(4)]; print(p, len(p), type(p[0]).__name__, p[1:3], p[-1].shape); attempt(p.__getitem__,9); attempt(p); p.append('str'); print(p); print([n for n,_ in p.named_parameters()], list(p.state_dict())); p[0]=torch.ones(7); print(p[0].shape); attempt(p.extend,3); print(p.pop() if hasattr(p,'pop') else None)
d=nn.ParameterDict({'b':torch.ones(1),'a':nn.Parameter(torch.ones(2))}); d['z']=torch.zeros(3); print(d, list(d), list(d.keys()), d.get('q'), d.get('q',3), 'a' in d, len(d), d.pop('a').shape, d.popitem()[0], d.setdefault('n',torch.ones(1)).shape); print(d | {'u':torch.ones(1)}, d.copy(), d.fromkeys(['x','y'],1)); attempt(d.__getitem__,'zz'); d.update([('m',torch.ones(1))]); print(list(reversed(d))); d.clear(); print(d)

---

# to, half, double, type, requires_grad_
m=nn.Sequential(nn.Linear(2,2),nn.BatchNorm1d(2)); print([p.dtype for p in m.double().state_dict().values()],[p.dtype for p in m.half().state_dict().values()],[p.dtype for p in m.bfloat16().state_dict().values()],[p.dtype for p in m.to(torch.float64).state_dict().values()],[p.dtype for p in m.float().state_dict().values()]); attempt(m.to,torch.int64); attempt(m.to,'foo'); print(m.to('cpu') is m, m.requires_grad_(False) is m, [p.requires_grad for p in m.parameters()]); attempt(m.requires_grad_,3); print(m.train().training, m.eval().training, m[0].training, m.train(False)[0].training); attempt(m.train,'x'); print([p.dtype for p in m.type(torch.float64).parameters()]); attempt(m.cuda) if not torch.cuda.is_available() and False else None

---

# extra state, hooks of state
class M(nn.Module):
    def __init__(self): super().__init__(); self.w=nn.Parameter(torch.ones(1)); self.k=3
    def get_extra_state(self): return {'k':self.k}
    def set_extra_state(self,s): self.k=s['k']
m=M(); print(m.state_dict()); n=M(); n.k=7; m.load_state_dict(n.state_dict()); print(m.k); sd=n.state_dict(); del sd['_extra_state']; attempt(m.load_state_dict,sd); l=nn.Linear(1,1); sd=l.state_dict(); sd['_extra_state']=3; attempt(l.load_state_dict,sd)
l=nn.Linear(1,1); h=l.register_state_dict_post_hook(lambda m,sd,p,lm: sd.update(new=1)); print(list(l.state_dict())); h.remove(); print(list(l.state_dict())); l.register_state_dict_pre_hook(lambda m,p,k: print('pre',p,k)); l.state_dict(prefix='a.'); l.register_load_state_dict_pre_hook(lambda m,sd,p,lm,s,mk,uk,e: print('loadpre',p,s)); l.register_load_state_dict_post_hook(lambda m,ik: ik.missing_keys.clear()); print(l.load_state_dict({'weight':torch.ones(1,1)}))

---

# non persistent buffers
m=nn.Module(); m.register_buffer('a',torch.ones(1),persistent=False); m.register_buffer('b',torch.ones(1)); print(list(m.state_dict()),[n for n,_ in m.named_buffers()], m._non_persistent_buffers_set); m.c=nn.Buffer(torch.ones(2),persistent=False); print(list(m.state_dict())); m.a=torch.zeros(3); print(list(m.state_dict()), m.a)

---

# apply, deepcopy, pickle
import copy, pickle
torch.manual_seed(0)
m=nn.Sequential(nn.Linear(2,2),nn.ReLU(),nn.LSTM(2,2)); order=[]; m.apply(lambda x: order.append(type(x).__name__)); print(order)
c=copy.deepcopy(m); print(c[0].weight is m[0].weight, torch.equal(c[0].weight,m[0].weight), repr(c)==repr(m)); c2=pickle.loads(pickle.dumps(m)); print(torch.equal(c2[0].weight,m[0].weight), c2[0].weight.requires_grad, type(c2[0].weight).__name__); c3=copy.copy(m[0]); print(c3.weight is m[0].weight)
l=nn.Linear(1,1); m=nn.Sequential(l,l); c=copy.deepcopy(m); print(c[0] is c[1]); p=nn.Parameter(torch.ones(2)); q=copy.deepcopy(p); print(type(q).__name__, q.requires_grad, q is p); m[0].weight.grad=torch.ones(1,1); print(copy.deepcopy(m)[0].weight.grad)

---

# zero_grad
m=nn.Linear(1,1); m(torch.ones(1,1)).sum().backward(); m.zero_grad(set_to_none=False); print(m.weight.grad); m.zero_grad(); print(m.weight.grad)

---

# hooks
m=nn.Linear(1,1); m.weight.data.fill_(2.); m.bias.data.fill_(0.); x=torch.ones(1,1,requires_grad=True)
hs=[m.register_forward_pre_hook(lambda m,a: (a[0]*2,)), m.register_forward_hook(lambda m,a,o: o+1), m.register_full_backward_hook(lambda m,gi,go: print('bw',gi,go)), m.register_full_backward_pre_hook(lambda m,go: print('pre',go))]
y=m(x); print(y); y.sum().backward(); print(x.grad); [h.remove() for h in hs]; print(m(x)); print(m._forward_hooks, m._backward_hooks)
for hook in (lambda m,gi,go: [None if g is None else g*2 for g in gi], lambda m,gi,go: 3, lambda m,gi,go: ()):
    h = m.register_full_backward_hook(hook); x.grad = None; attempt(lambda: m(x).sum().backward()); print(x.grad); h.remove()
    h = m.register_full_backward_hook(hook); attempt(lambda: m(torch.ones(1,1)).sum().backward()); h.remove()
    h = m.register_full_backward_pre_hook(lambda m,go: hook(m,go,go)); x.grad = None; attempt(lambda: m(x).sum().backward()); print(x.grad); h.remove()
m.register_forward_hook(lambda m,a,k,o: print(a,k), with_kwargs=True); m.register_forward_pre_hook(lambda m,a,k: (a,{}), with_kwargs=True); m(x); m(input=x) if False else None

---

# embedding padding, from_pretrained
torch.manual_seed(0)
e=nn.Embedding(4,3,padding_idx=1); print(e, e.weight[1]); e(torch.tensor([0,1,1])).sum().backward(); print(e.weight.grad); attempt(nn.Embedding,4,3,padding_idx=4); attempt(nn.Embedding,4,3,padding_idx=-5); print(nn.Embedding(4,3,padding_idx=-1).padding_idx); f=nn.Embedding.from_pretrained(torch.eye(3)); print(f, f.weight.requires_grad); attempt(nn.Embedding.from_pretrained,torch.ones(3)); attempt(e,torch.tensor([1.])); print(nn.Embedding(4,3,max_norm=1.,norm_type=1.,scale_grad_by_freq=True,sparse=False))

---

# weight tying
m=nn.Module(); m.e=nn.Embedding(3,2); m.h=nn.Linear(2,3,bias=False); m.h.weight=m.e.weight; print(len(list(m.parameters())), list(m.state_dict())); o=torch.optim.SGD(m.parameters(),.1); print(len(o.param_groups[0]['params']))

---

# Parameter
attempt(nn.Parameter,torch.ones(1).long()); print(nn.Parameter(torch.ones(1).long(),requires_grad=False)); p=nn.Parameter(torch.ones(2)); print(type(p+1).__name__, type(p.data).__name__, type(p.detach()).__name__, p.is_leaf, isinstance(p,torch.Tensor)); print(nn.Parameter()); q=nn.Parameter(p); print(type(q).__name__); print(type(p.clone()).__name__, p.clone().requires_grad)

---

# module attrs
l=nn.Linear(3,4); print(l.in_features,l.out_features,l.weight.shape,l.bias.shape, l.training, l.__class__.__name__); c=nn.Conv2d(3,4,3,padding='same'); print(c.kernel_size,c.stride,c.padding,c.dilation,c.groups,c.transposed,c.output_padding,c.padding_mode,c._reversed_padding_repeated_twice, c.weight.shape); b=nn.BatchNorm2d(3); print(b.num_features,b.eps,b.momentum,b.affine,b.track_running_stats,b.running_mean,b.num_batches_tracked, b.num_batches_tracked.dtype); p=nn.MaxPool2d(2); print(p.kernel_size,p.stride,p.padding,p.dilation,p.return_indices,p.ceil_mode); r=nn.LSTM(2,3,2,bidirectional=True); print(r.mode,r.input_size,r.hidden_size,r.num_layers,r.bias,r.batch_first,r.dropout,r.bidirectional,r.proj_size, [len(w) for w in r.all_weights], len(r._flat_weights)); m=nn.MultiheadAttention(4,2); print(m.embed_dim,m.num_heads,m.head_dim,m.kdim,m.vdim,m.batch_first,m._qkv_same_embed_dim,m.dropout,m.bias_k,m.in_proj_weight.shape); d=nn.Dropout(.3); print(d.p,d.inplace); e=nn.CrossEntropyLoss(); print(e.weight,e.ignore_index,e.reduction,e.label_smoothing); u=nn.Upsample(scale_factor=2); print(u.size,u.scale_factor,u.mode,u.align_corners,u.name)

---

# lazy
m=nn.LazyLinear(3); print(m, m.weight, m.has_uninitialized_params()); attempt(lambda: m.weight.shape); print(m(torch.ones(2,5)).shape, m, type(m).__name__, m.has_uninitialized_params() if hasattr(m,'has_uninitialized_params') else None); c=nn.LazyConv2d(4,3); print(c); c(torch.ones(1,2,5,5)); print(c); b=nn.LazyBatchNorm1d(); print(b); b(torch.ones(3,2)); print(b)

---

# parametrize
P=nn.utils.parametrize
class S(nn.Module):
    def forward(self,x): return x.triu()+x.triu(1).T
m=nn.Linear(3,3); P.register_parametrization(m,'weight',S()); print(m, type(m).__name__, list(m.state_dict()), P.is_parametrized(m), P.is_parametrized(m,'bias'), P.type_before_parametrizations(m).__name__); attempt(P.register_parametrization,m,'foo',S()); attempt(setattr,m,'weight',torch.ones(3,3)); P.remove_parametrizations(m,'weight'); print(m, type(m).__name__); attempt(P.remove_parametrizations,m,'weight'); attempt(P.register_parametrization,nn.Linear(2,3),'weight',S())
with P.cached(): pass

---

# prune
pr=nn.utils.prune
torch.manual_seed(0); m=nn.Linear(3,2); pr.l1_unstructured(m,'weight',2); print(list(m.state_dict()), m.weight_mask, pr.is_pruned(m), [n for n,_ in m.named_parameters()]); pr.ln_structured(m,'weight',1,2,1); print(m.weight_mask, [type(h).__name__ for h in m._forward_pre_hooks.values()]); pr.remove(m,'weight'); print(list(m.state_dict()), m.weight); attempt(pr.remove,m,'weight'); m2=nn.Sequential(nn.Linear(3,3),nn.Linear(3,3)); pr.global_unstructured([(m2[0],'weight'),(m2[1],'weight')],pr.L1Unstructured,amount=.5); print(m2[0].weight_mask, m2[1].weight_mask); pr.random_structured(m,'weight',1,0); print(m.weight_mask); pr.custom_from_mask(m,'bias',torch.tensor([1.,0.])); print(m.bias)

---

# clip
p=nn.Parameter(torch.ones(3)); p.grad=torch.tensor([3.,4.,0.]); print(nn.utils.clip_grad_norm_([p],1.), p.grad); print(nn.utils.clip_grad_norm_(p,10.,norm_type=1), nn.utils.clip_grad_norm_(p,10.,norm_type=float('inf'))); p.grad=torch.tensor([float('nan'),4.,0.]); attempt(nn.utils.clip_grad_norm_,[p],1.,error_if_nonfinite=True); print(nn.utils.clip_grad_norm_([],1.)); p.grad=torch.tensor([3.,-4.,0.]); nn.utils.clip_grad_value_([p],2.); print(p.grad, nn.utils.get_total_norm([p.grad])); nn.utils.clip_grads_with_norm_([p],1.,torch.tensor(5.)); print(p.grad); print(nn.utils.clip_grad_norm_(iter([p]),1.))
v=nn.utils.parameters_to_vector([p]); print(v); nn.utils.vector_to_parameters(torch.arange(3.),[p]); print(p); attempt(nn.utils.vector_to_parameters,[1.],[p])

---

# init
torch.manual_seed(0)
w=torch.empty(3,4);
for f,k in ((nn.init.uniform_,{}),(nn.init.normal_,dict(std=.1)),(nn.init.constant_,dict(val=2.)),(nn.init.ones_,{}),(nn.init.zeros_,{}),(nn.init.eye_,{}),(nn.init.xavier_uniform_,dict(gain=2.)),(nn.init.xavier_normal_,{}),(nn.init.kaiming_uniform_,dict(a=.1)),(nn.init.kaiming_normal_,dict(mode='fan_out',nonlinearity='relu')),(nn.init.trunc_normal_,dict(std=.5)),(nn.init.orthogonal_,dict(gain=.5)),(nn.init.sparse_,dict(sparsity=.5))): print(f.__name__, f(w,**k))
print(nn.init.dirac_(torch.empty(2,2,3)), nn.init.calculate_gain('leaky_relu',.2), nn.init.calculate_gain('tanh'), nn.init.calculate_gain('relu'))
attempt(nn.init.calculate_gain,'foo'); attempt(nn.init.eye_,torch.ones(2)); attempt(nn.init.xavier_uniform_,torch.ones(2)); attempt(nn.init.dirac_,torch.ones(2)); attempt(nn.init.kaiming_normal_,torch.ones(2,2),mode='x'); attempt(nn.init.orthogonal_,torch.ones(2)); attempt(nn.init.sparse_,torch.ones(2),.1)

---

# rnn utils
U=nn.utils.rnn
p=U.pack_sequence([torch.arange(4.),torch.arange(2.)]); print(p, p.data, p.batch_sizes, U.pad_packed_sequence(p), U.unpack_sequence(p)); print(p.to(torch.float64).data.dtype, p.is_cuda, p.double().data.dtype); attempt(U.pad_packed_sequence,p,total_length=1); attempt(U.pad_sequence,[]); attempt(U.pack_sequence,[torch.ones(1),torch.ones(2)]); print(U.pad_sequence([torch.ones(2,2),torch.ones(3,2)]).shape)
---

# parameters of a class
class Own(torch.Tensor): pass
class Marked(torch.Tensor):
    @staticmethod
    def __new__(cls, x, mark): out = torch.Tensor._make_subclass(cls, x); out.mark = mark; return out
for t in (torch.ones(3).as_subclass(Own), Marked(torch.ones(3), 'a')):
    print(type(t.detach()).__name__, type(t.data).__name__)
    p = nn.Parameter(t)
    print(type(p).__name__, isinstance(p, nn.Parameter), isinstance(t, nn.Parameter), p.requires_grad, p.is_leaf, type(p * 2).__name__, nn.Parameter(t, False).requires_grad)
    m = nn.Module(); m.p = p; print([*dict(m.named_parameters())], m.p is p)
    t[0] = 5; print(p.tolist())
    (p * p).sum().backward(); print(p.grad.tolist()); torch.optim.SGD(m.parameters(), 0.1).step(); print(p.tolist())
class Plain(torch.Tensor):
    def detach(self): return 'mine'
print(Plain(torch.ones(2)).detach())

---

# second derivatives of lazy layers
for m, x in ((nn.LazyLinear(2), torch.ones(3, 4)), (nn.LazyConv1d(2, 3), torch.ones(1, 2, 5)), (nn.LazyBatchNorm1d(), torch.arange(6.).view(3, 2))):
    x = x.requires_grad_(); y = m(x); [w.data.fill_(0.5) for w in m.parameters()]; y = m(x)
    first = torch.autograd.grad(y.square().sum(), [x, *m.parameters()], create_graph=True)
    second = torch.autograd.grad(sum((g * g).sum() for g in first), [x, *m.parameters()], allow_unused=True)
    print([g is None or g.shape for g in second], [None if g is None else g.abs().sum().round(decimals=2) for g in second])

---

# what is unpadded is a copy
U=nn.utils.rnn
x = torch.arange(6.).view(3, 2).requires_grad_(); a, b = U.unpad_sequence(x * 1, torch.tensor([3, 1])); print(a, b, a.is_contiguous(), a.grad_fn.name()); (a.sum() + b.sum()).backward(); print(x.grad)
y = torch.zeros(2, 3); U.unpad_sequence(y, torch.tensor([3, 1]), True)[0].add_(1); print(y, U.pad_sequence([torch.ones(2, dtype=torch.long), torch.full((1,), 2.7)]))

---

# memories of another size
for cell, h in ((nn.LSTMCell(2, 3), (torch.ones(1, 3), torch.ones(1, 3))), (nn.GRUCell(2, 3), torch.ones(1, 3)), (nn.RNNCell(2, 3), torch.ones(1, 3))):
    attempt(cell, torch.ones(2), h)
    attempt(cell, torch.ones(1, 2), tuple(s[0] for s in h) if isinstance(h, tuple) else h[0])

---

# what is refused
attempt(nn.Embedding(3, 2), torch.tensor([1], dtype=torch.int8)); print(nn.Embedding(3, 2)(torch.tensor([1], dtype=torch.int32)).shape); attempt(F.pdist, torch.ones(2, 3), -1)
m = nn.MultiheadAttention(4, 2); x = torch.ones(3, 1, 4)
for bias_k, bias_v in ((torch.ones(1, 1, 4), None), (None, torch.ones(1, 1, 4))): attempt(F.multi_head_attention_forward, x, x, x, 4, 2, m.in_proj_weight, m.in_proj_bias, bias_k, bias_v, False, 0., m.out_proj.weight, m.out_proj.bias)
attempt(torch.optim.SparseAdam, [torch.ones(2, 2), torch.ones(2, dtype=torch.cfloat)]); attempt(torch.optim.SparseAdam, [torch.ones(2)], lr=torch.ones(2))

---

# parameters without a shape
import io, pickle, copy
p = nn.LazyLinear(3).weight
for do in (len, bool, iter, lambda p: p[0], lambda p: p.numel(), lambda p: p.dim(), lambda p: p.stride(), lambda p: p.item(), lambda p: p.tolist(), lambda p: p.view(1), lambda p: p.requires_grad_(False), lambda p: p.register_hook(print), lambda p: p.type(), lambda p: p.new_zeros(2), lambda p: p.register_post_accumulate_grad_hook(print), lambda p: p.flatten(), lambda p: p.contiguous(), lambda p: p.equal(p), lambda p: p.type_as(p)):
    try: print(do(p))
    except ValueError as error: print(str(error)[:46])
print([nn.LazyLinear(2).to(torch.float64).weight.dtype, nn.LazyConv2d(2, 1).half().weight.dtype, type(nn.LazyBatchNorm1d().cpu().weight).__name__])
print(p.requires_grad, type(pickle.loads(pickle.dumps(p))).__name__, type(copy.copy(p)).__name__, type(copy.copy(nn.LazyBatchNorm1d().running_mean)).__name__)
def through(m, **how):
    f = io.BytesIO(); torch.save(m.state_dict(), f); f.seek(0); return torch.load(f, **how)
print({k: (type(v).__name__, v.requires_grad) for k, v in through(nn.LazyBatchNorm1d(), weights_only=False).items()})
try: through(nn.LazyLinear(3))
except pickle.UnpicklingError as error: print('not among weights')
m = nn.LazyLinear(3); m.load_state_dict(through(nn.LazyLinear(3), weights_only=False)); print(type(m.weight).__name__, m(torch.ones(1, 2)).shape)

---

# pruning and packing at their edges
from torch.nn.utils import prune
U = nn.utils.rnn
for wrong in (lambda: prune.PruningContainer(prune.Identity()), lambda: prune.Identity().apply_mask(nn.Linear(1, 1))):
    try: wrong()
    except AttributeError as error: print(error)
x = torch.arange(12.).view(3, 2, 2)
for lengths, how in (([4, 3], {}), ([5, 1], {}), ([1, 4], dict(enforce_sorted=False)), ([3, 2], {}), ([4, 2], dict(batch_first=True))): print(U.pack_padded_sequence(x[:, :, :1] if 'batch_first' not in how else x[:2], lengths, **how))
"""

CASES = {program.strip().splitlines()[0].lstrip("# "): program for program in PROGRAMS.split("\n---\n")}


@pytest.mark.parametrize("title", CASES)
def test_prints_the_same(title):
    import torch.nn.utils.prune  # PyTorch imports it on demand only

    assert torch.nn.utils.prune
    assert_same_output("nn, F = torch.nn, torch.nn.functional\n" + CASES[title])


def test_full_backward_hooks_give_one_thing_for_each_gradient():
    "A tensor alone is taken for as many gradients as it has rows."
    layer, x = autograd_nb.nn.Linear(2, 2), autograd_nb.ones(1, 2, requires_grad=True)
    layer.register_full_backward_hook(lambda m, given, out: given[0] * 2)
    with pytest.raises(RuntimeError, match="has changed the size of value"): layer(x).sum().backward()
    assert x.grad is None


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("way", ["torch.func.vmap(net)(x)", "sum(torch.func.jvp(net, (x,), (x * 2,)))"])
def test_transforms_pass_full_backward_hooks_by(learned, way):
    "Inside vmap and jvp nobody asks for gradients; outside, those of parameters go on."
    import torch as theirs

    found = []
    for lib in (theirs, autograd_nb):
        net, seen = lib.nn.Linear(3, 2).double().requires_grad_(learned), []
        with lib.no_grad():
            for p in net.parameters():
                p.copy_(lib.arange(p.numel() * 1.0).reshape(p.shape) / 5)
        net.register_full_backward_hook(lambda m, given, out, seen=seen: seen.append(out[0].tolist()))
        net.register_full_backward_pre_hook(lambda m, out, seen=seen: seen.append(out[0].tolist()))
        x = lib.arange(6.0, dtype=lib.float64).reshape(2, 3).requires_grad_()
        (eval(way, dict(torch=lib, net=net, x=x)) ** 2).sum().backward()
        found.append((seen, [None if p.grad is None else p.grad.tolist() for p in (x, *net.parameters())]))
    assert found[0] == found[1]


def test_lazy_buffers_change_their_dtype():
    norm = autograd_nb.nn.LazyBatchNorm1d().double()
    assert norm.running_mean.dtype is norm.running_var.dtype is autograd_nb.float64 and norm.num_batches_tracked.dtype is autograd_nb.int64
    assert norm(autograd_nb.ones(3, 2, dtype=autograd_nb.float64)).dtype is autograd_nb.float64


def test_as_many_lengths_as_sequences():
    from autograd_nb.nn.utils.rnn import unpad_sequence

    x = autograd_nb.ones(3, 2)
    assert [len(s) for s in unpad_sequence(x, autograd_nb.tensor([3, 1]))] == [3, 1]
    with pytest.raises(ValueError): unpad_sequence(x, autograd_nb.tensor([3]))
    with pytest.raises(AttributeError, match="no attribute 'device'"): unpad_sequence(x, [3, 1])


@pytest.mark.needs("torch")
def test_conversions_give_new_parameters_where_that_is_asked_for():
    import torch as theirs

    import autograd_nb as ours

    def facts(lib):
        m = lib.nn.Linear(2, 1)
        m.bias.requires_grad_(False)
        m(lib.ones(2)).backward()
        before = m.weight
        lib.__future__.set_overwrite_module_params_on_conversion(True)
        try:
            m.double()
        finally:
            lib.__future__.set_overwrite_module_params_on_conversion(False)
        w = m.weight
        return w is before, str(before.dtype)[-7:], str(w.dtype)[-7:], w.is_leaf, w.requires_grad, m.bias.requires_grad, w.grad.tolist(), str(w.grad.dtype)[-7:], type(w).__name__

    assert facts(ours) == facts(theirs)


@pytest.mark.needs("torch")
def test_a_buffer_that_holds_nothing_is_one():
    import torch as theirs

    import autograd_nb as ours

    for lib in (theirs, ours):
        m = lib.nn.Module()
        m.register_buffer("b", None)
        assert m.get_buffer("b") is None
        m.register_parameter("p", None)
        with pytest.raises(AttributeError, match="`p` is not an nn.Parameter"): m.get_parameter("p")
