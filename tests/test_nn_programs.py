"""Small training programs as one finds them in courses, written for PyTorch: the same losses and the same model under both libraries.

Each program is a function of the library. It builds its model and data from a seed, trains for 20 steps, and returns the losses and the model.
"""

import importlib
import math

import numpy as np
import pytest
from _rounding import assert_same_arrays, assert_same_numbers

import autograd_nb

pytestmark = pytest.mark.needs("torch")

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


@program
def mnist_cnn(torch):
    "Two convolutions, pooling, dropout, negative log-likelihood, Adadelta with a step schedule."
    nn, F, optim = torch.nn, torch.nn.functional, torch.optim

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 8, 3, 1)
            self.conv2 = nn.Conv2d(8, 16, 3, 1)
            self.dropout1 = nn.Dropout(0.25)
            self.dropout2 = nn.Dropout(0.5)
            self.fc1 = nn.Linear(2304, 32)
            self.fc2 = nn.Linear(32, 10)

        def forward(self, x):
            x = F.relu(self.conv1(x))
            x = F.relu(self.conv2(x))
            x = self.dropout1(F.max_pool2d(x, 2))
            x = F.relu(self.fc1(torch.flatten(x, 1)))
            return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)

    torch.manual_seed(1)
    model = Net()
    x, y = torch.randn(16, 1, 28, 28), torch.randint(0, 10, (16,))
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.7)
    losses = []
    model.train()
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        losses.append((model(x).argmax(dim=1, keepdim=True).eq(y.view_as(y.view(-1, 1).squeeze(1)).view(-1, 1))).sum().item())
    return losses, model


@program
def lenet(torch):
    "LeNet with `view`, average pooling, SGD with momentum, cross-entropy."
    nn = torch.nn

    class LeNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 6, 5), nn.Tanh(), nn.AvgPool2d(2, 2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2, 2))
            self.classifier = nn.Sequential(nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))

        def forward(self, x):
            x = self.features(x)
            return self.classifier(x.view(-1, 16 * 5 * 5))

    torch.manual_seed(0)
    model, criterion = LeNet(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(20):
        inputs, labels = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


@program
def gpt(torch):
    "A character-level transformer: causal attention by hand, weight tying, GELU, AdamW with two groups, gradient clipping."
    nn, F = torch.nn, torch.nn.functional
    vocab, block, width, heads = 17, 12, 16, 4

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_attn = nn.Linear(width, 3 * width)
            self.c_proj = nn.Linear(width, width)
            self.attn_dropout, self.resid_dropout = nn.Dropout(0.1), nn.Dropout(0.1)
            self.register_buffer("bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block))

        def forward(self, x):
            B, T, C = x.size()
            q, k, v = self.c_attn(x).split(width, dim=2)
            k = k.view(B, T, heads, C // heads).transpose(1, 2)
            q = q.view(B, T, heads, C // heads).transpose(1, 2)
            v = v.view(B, T, heads, C // heads).transpose(1, 2)
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = self.attn_dropout(F.softmax(att, dim=-1))
            y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
            return self.resid_dropout(self.c_proj(y))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), Attention(), nn.LayerNorm(width)
            self.mlp = nn.ModuleDict(dict(c_fc=nn.Linear(width, 4 * width), c_proj=nn.Linear(4 * width, width), act=nn.GELU(), dropout=nn.Dropout(0.1)))

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            m = self.mlp
            return x + m.dropout(m.c_proj(m.act(m.c_fc(self.ln_2(x)))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.transformer = nn.ModuleDict(dict(wte=nn.Embedding(vocab, width), wpe=nn.Embedding(block, width), drop=nn.Dropout(0.1), h=nn.ModuleList([Block() for _ in range(2)]), ln_f=nn.LayerNorm(width)))
            self.lm_head = nn.Linear(width, vocab, bias=False)
            self.transformer.wte.weight = self.lm_head.weight
            self.apply(self._init_weights)
            for pn, p in self.named_parameters():
                if pn.endswith("c_proj.weight"):
                    torch.nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(4))

        def _init_weights(self, module):
            if isinstance(module, nn.Linear):
                torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
                if module.bias is not None:
                    torch.nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

        def forward(self, idx, targets=None):
            t = self.transformer
            pos = torch.arange(0, idx.size(1), dtype=torch.long).unsqueeze(0)
            x = t.drop(t.wte(idx) + t.wpe(pos))
            for block in t.h:
                x = block(x)
            logits = self.lm_head(t.ln_f(x))
            return logits, None if targets is None else F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

        @torch.no_grad()
        def generate(self, idx, n):
            for _ in range(n):
                logits, _ = self(idx[:, -block:])
                probs = F.softmax(logits[:, -1, :], dim=-1)
                idx = torch.cat((idx, torch.multinomial(probs, num_samples=1)), dim=1)
            return idx

    torch.manual_seed(1337)
    model = GPT()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.95))
    data = torch.randint(0, vocab, (200,))
    losses = []
    for _ in range(20):
        ix = torch.randint(len(data) - block, (4,))
        x, y = torch.stack([data[i : i + block] for i in ix]), torch.stack([data[i + 1 : i + 1 + block] for i in ix])
        _, loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        losses.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    losses += model.generate(torch.zeros(1, 1, dtype=torch.long), 10)[0].tolist()
    return losses, model


@program
def gpt_sdpa(torch):
    "The same idea with PyTorch's own attention function and encoder layers."
    nn, F = torch.nn, torch.nn.functional

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.qkv, self.out, self.norm = nn.Embedding(11, 16), nn.Linear(16, 48, bias=False), nn.Linear(16, 11), nn.RMSNorm(16)

        def forward(self, idx):
            x = self.embed(idx)
            q, k, v = (t.view(*idx.shape, 4, 4).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
            x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
            return self.out(F.silu(x))

    torch.manual_seed(3)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(20):
        idx = torch.randint(0, 11, (4, 9))
        loss = F.cross_entropy(model(idx[:, :-1]).transpose(1, 2), idx[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


@program
def makemore_mlp(torch):
    "A bigger and bigger context, batch norm by hand, plain tensors, manual updates."
    F = torch.nn.functional
    g = torch.Generator().manual_seed(2147483647)
    C = torch.randn((27, 10), generator=g)
    W1 = torch.randn((30, 50), generator=g) * (5 / 3) / (30**0.5)
    W2 = torch.randn((50, 27), generator=g) * 0.01
    b2 = torch.randn(27, generator=g) * 0
    bngain, bnbias = torch.ones((1, 50)), torch.zeros((1, 50))
    parameters = [C, W1, W2, b2, bngain, bnbias]
    for p in parameters:
        p.requires_grad = True
    X, Y = torch.randint(0, 27, (100, 3), generator=g), torch.randint(0, 27, (100,), generator=g)
    losses = []
    for _ in range(20):
        ix = torch.randint(0, X.shape[0], (32,), generator=g)
        emb = C[X[ix]]
        hpreact = emb.view(emb.shape[0], -1) @ W1
        hpreact = bngain * (hpreact - hpreact.mean(0, keepdim=True)) / hpreact.std(0, keepdim=True) + bnbias
        logits = torch.tanh(hpreact) @ W2 + b2
        loss = F.cross_entropy(logits, Y[ix])
        for p in parameters:
            p.grad = None
        loss.backward()
        for p in parameters:
            p.data += -0.1 * p.grad
        losses.append(loss.log10().item())
    return losses, dict(zip("C W1 W2 b2 gain bias".split(), parameters))


@program
def lstm_classifier(torch):
    "Packed sequences of different lengths through a bidirectional LSTM; the last states classify."
    nn = torch.nn
    rnn = importlib.import_module(torch.__name__ + ".nn.utils.rnn")

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(30, 12, padding_idx=0)
            self.lstm = nn.LSTM(12, 10, num_layers=2, bidirectional=True, dropout=0.3, batch_first=True)
            self.fc = nn.Linear(20, 3)

        def forward(self, text, lengths):
            packed = rnn.pack_padded_sequence(self.embedding(text), lengths, batch_first=True, enforce_sorted=False)
            _, (h, _) = self.lstm(packed)
            return self.fc(torch.cat((h[-2], h[-1]), dim=1))

    torch.manual_seed(0)
    model, criterion = Classifier(), nn.CrossEntropyLoss()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        lengths = torch.randint(2, 9, (6,))
        text = rnn.pad_sequence([torch.randint(1, 30, (n,)) for n in lengths.tolist()], batch_first=True)
        loss = criterion(model(text, lengths), torch.randint(0, 3, (6,)))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses, model


@program
def char_gru(torch):
    "A GRU that predicts the next character, its state carried from batch to batch."
    nn = torch.nn
    torch.manual_seed(0)
    encoder, gru, decoder = nn.Embedding(20, 16), nn.GRU(16, 16, 2), nn.Linear(16, 20)
    params = [*encoder.parameters(), *gru.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(params, lr=5e-3)
    hidden, losses = torch.zeros(2, 5, 16), []
    for _ in range(20):
        text = torch.randint(0, 20, (7, 5))
        out, hidden = gru(encoder(text[:-1]), hidden.detach())
        loss = nn.functional.cross_entropy(decoder(out).view(-1, 20), text[1:].view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, nn.ModuleList([encoder, gru, decoder])


@program
def rnn_by_hand(torch):
    "The name classifier: one letter at a time through linear layers, NLL, updates with `add_` and `alpha`."
    nn = torch.nn

    class RNN(nn.Module):
        def __init__(self, input_size, hidden_size, output_size):
            super().__init__()
            self.hidden_size = hidden_size
            self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
            self.i2o = nn.Linear(input_size + hidden_size, output_size)
            self.softmax = nn.LogSoftmax(dim=1)

        def forward(self, input, hidden):
            combined = torch.cat((input, hidden), 1)
            return self.softmax(self.i2o(combined)), self.i2h(combined)

    torch.manual_seed(0)
    rnn, criterion, losses = RNN(26, 16, 4), nn.NLLLoss(), []
    for _ in range(20):
        line = torch.nn.functional.one_hot(torch.randint(0, 26, (5, 1)), 26).float()
        hidden = torch.zeros(1, 16)
        rnn.zero_grad()
        for i in range(line.size()[0]):
            output, hidden = rnn(line[i], hidden)
        loss = criterion(output, torch.randint(0, 4, (1,)))
        loss.backward()
        for p in rnn.parameters():
            p.data.add_(p.grad.data, alpha=-0.05)
        losses.append(loss.item())
    return losses, rnn


@program
def vae(torch):
    "Reparametrisation, binary cross-entropy summed, and the divergence from a normal distribution."
    nn, F = torch.nn, torch.nn.functional

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc21, self.fc22, self.fc3, self.fc4 = nn.Linear(64, 32), nn.Linear(32, 4), nn.Linear(32, 4), nn.Linear(4, 32), nn.Linear(32, 64)

        def reparameterize(self, mu, logvar):
            std = torch.exp(0.5 * logvar)
            return mu + torch.randn_like(std) * std

        def forward(self, x):
            h = F.relu(self.fc1(x.view(-1, 64)))
            mu, logvar = self.fc21(h), self.fc22(h)
            return torch.sigmoid(self.fc4(F.relu(self.fc3(self.reparameterize(mu, logvar))))), mu, logvar

    torch.manual_seed(1)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(20):
        x = torch.rand(8, 1, 8, 8)
        optimizer.zero_grad()
        recon, mu, logvar = model(x)
        loss = F.binary_cross_entropy(recon, x.view(-1, 64), reduction="sum") - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


@program
def dcgan(torch):
    "A generator of transposed convolutions against a discriminator: two optimisers, detach, batch norm, leaky rectifiers."
    nn = torch.nn

    def weights_init(m):
        name = m.__class__.__name__
        if name.find("Conv") != -1:
            nn.init.normal_(m.weight.data, 0.0, 0.02)
        elif name.find("BatchNorm") != -1:
            nn.init.normal_(m.weight.data, 1.0, 0.02)
            nn.init.constant_(m.bias.data, 0)

    torch.manual_seed(999)
    netG = nn.Sequential(
        nn.ConvTranspose2d(6, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
        nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
        nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False), nn.Tanh())
    netD = nn.Sequential(
        nn.Conv2d(1, 8, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(8, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 1, 4, 1, 0, bias=False), nn.Sigmoid())
    netG.apply(weights_init), netD.apply(weights_init)
    criterion = nn.BCELoss()
    optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
    losses = []
    for _ in range(10):
        real = torch.randn(4, 1, 16, 16)
        netD.zero_grad()
        label = torch.full((4,), 1.0, dtype=torch.float)
        errD_real = criterion(netD(real).view(-1), label)
        errD_real.backward()
        fake = netG(torch.randn(4, 6, 1, 1))
        label.fill_(0.0)
        errD_fake = criterion(netD(fake.detach()).view(-1), label)
        errD_fake.backward()
        optimizerD.step()
        netG.zero_grad()
        label.fill_(1.0)
        errG = criterion(netD(fake).view(-1), label)
        errG.backward()
        optimizerG.step()
        losses += [(errD_real + errD_fake).item(), errG.item()]
    return losses, nn.ModuleList([netG, netD])


@program
def resnet(torch):
    "Residual blocks with batch norm and projections, adaptive pooling, Nesterov momentum, cosine schedule."
    nn, F = torch.nn, torch.nn.functional

    class BasicBlock(nn.Module):
        def __init__(self, in_planes, planes, stride=1):
            super().__init__()
            self.conv1 = nn.Conv2d(in_planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(planes)
            self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=1, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(planes)
            self.shortcut = nn.Sequential()
            if stride != 1 or in_planes != planes:
                self.shortcut = nn.Sequential(nn.Conv2d(in_planes, planes, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(planes))

        def forward(self, x):
            out = F.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            out += self.shortcut(x)
            return F.relu(out)

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
            self.layer1, self.layer2 = BasicBlock(8, 8), BasicBlock(8, 16, 2)
            self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(16, 5)
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

        def forward(self, x):
            x = F.relu(self.bn1(self.conv1(x)), inplace=True)
            x = self.avgpool(self.layer2(self.layer1(x)))
            return self.fc(torch.flatten(x, 1))

    torch.manual_seed(0)
    model = ResNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    losses = []
    for _ in range(20):
        x, y = torch.randn(6, 3, 12, 12), torch.randint(0, 5, (6,))
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    model.eval()
    losses += model(x).flatten().tolist()
    return losses, model


@program
def transformer_classifier(torch):
    "`nn.TransformerEncoder` with sinusoidal positions, padding masks and mean pooling."
    nn = torch.nn

    class PositionalEncoding(nn.Module):
        def __init__(self, d_model, max_len=50):
            super().__init__()
            position = torch.arange(max_len).unsqueeze(1)
            div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
            pe = torch.zeros(max_len, 1, d_model)
            pe[:, 0, 0::2] = torch.sin(position * div_term)
            pe[:, 0, 1::2] = torch.cos(position * div_term)
            self.register_buffer("pe", pe)

        def forward(self, x):
            return x + self.pe[: x.size(0)]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.pos = nn.Embedding(25, 16, padding_idx=0), PositionalEncoding(16)
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, 0.1), 2)
            self.linear = nn.Linear(16, 3)

        def forward(self, src):
            padding = (src == 0).transpose(0, 1)
            x = self.encoder(self.pos(self.embedding(src) * math.sqrt(16)), src_key_padding_mask=padding)
            keep = (~padding).transpose(0, 1).unsqueeze(-1)
            return self.linear((x * keep).sum(0) / keep.sum(0))

    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        src = torch.randint(0, 25, (7, 5))
        src[0] = 1
        loss = nn.CrossEntropyLoss()(model(src), torch.randint(0, 3, (5,)))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses, model


@program
def translation(torch):
    "`nn.Transformer` with source and target masks, as in the translation tutorial."
    nn = torch.nn
    torch.manual_seed(0)
    src_emb, tgt_emb, out = nn.Embedding(20, 16), nn.Embedding(22, 16), nn.Linear(16, 22)
    transformer = nn.Transformer(d_model=16, nhead=2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=32, dropout=0.1)
    model = nn.ModuleList([src_emb, tgt_emb, out, transformer])
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    loss_fn = nn.CrossEntropyLoss(ignore_index=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for _ in range(20):
        src, tgt = torch.randint(1, 20, (6, 3)), torch.randint(1, 22, (7, 3))
        src[0], tgt[0] = 2, 2
        tgt_input = tgt[:-1, :]
        tgt_mask = nn.Transformer.generate_square_subsequent_mask(tgt_input.shape[0])
        src_mask = torch.zeros((6, 6)).type(torch.bool)
        src_pad, tgt_pad = (src == 1).transpose(0, 1), (tgt_input == 1).transpose(0, 1)
        logits = out(transformer(src_emb(src) * 4, tgt_emb(tgt_input) * 4, src_mask, tgt_mask, None, src_pad, tgt_pad, src_pad))
        optimizer.zero_grad()
        loss = loss_fn(logits.reshape(-1, logits.shape[-1]), tgt[1:, :].reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


@program
def autoencoder(torch):
    "Convolutions down, transposed convolutions and upsampling back up, mean squared error."
    nn = torch.nn
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.GELU(), nn.Conv2d(8, 4, 3, stride=2, padding=1), nn.SiLU(),
        nn.ConvTranspose2d(4, 8, 2, stride=2), nn.GroupNorm(2, 8), nn.ReLU(),
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), nn.Conv2d(8, 1, 3, padding="same", padding_mode="reflect"), nn.Sigmoid())
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        x = torch.rand(4, 1, 16, 16)
        loss = nn.MSELoss()(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


@program
def siamese(torch):
    "One network applied to three inputs; triplet, cosine and contrastive losses."
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 16), nn.PReLU(), nn.BatchNorm1d(16), nn.Linear(16, 8))
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.05)
    losses = []
    for _ in range(20):
        a, p, n = torch.randn(6, 12), torch.randn(6, 12), torch.randn(6, 12)
        ea, ep, en = net(a), net(p), net(n)
        label = torch.randint(0, 2, (6,)).float()
        d = F.pairwise_distance(ea, ep)
        contrastive = torch.mean((1 - label) * d.pow(2) + label * torch.clamp(2.0 - d, min=0.0).pow(2))
        loss = nn.TripletMarginLoss(margin=1.0)(ea, ep, en) + contrastive + F.cosine_embedding_loss(ea, en, 2 * label - 1, margin=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, net


@program
def dqn(torch):
    "A policy network and its target network: gather, Huber loss, soft updates through state dictionaries."
    nn, F = torch.nn, torch.nn.functional

    class DQN(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer1, self.layer2, self.layer3 = nn.Linear(4, 32), nn.Linear(32, 32), nn.Linear(32, 2)

        def forward(self, x):
            return self.layer3(F.relu(self.layer2(F.relu(self.layer1(x)))))

    torch.manual_seed(0)
    policy, target = DQN(), DQN()
    target.load_state_dict(policy.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True)
    losses = []
    for _ in range(20):
        state, action, reward, following = torch.randn(16, 4), torch.randint(0, 2, (16, 1)), torch.randn(16), torch.randn(16, 4)
        alive = torch.rand(16) > 0.2
        values = policy(state).gather(1, action)
        next_values = torch.zeros(16)
        with torch.no_grad():
            next_values[alive] = target(following[alive]).max(1).values
        loss = nn.SmoothL1Loss()(values, (next_values * 0.99 + reward).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        ours, theirs = policy.state_dict(), target.state_dict()
        for key in ours:
            theirs[key] = ours[key] * 0.05 + theirs[key] * 0.95
        target.load_state_dict(theirs)
        losses.append(loss.item())
    return losses, nn.ModuleList([policy, target])


@program
def actor_critic(torch):
    "Sampling from a softmax, log-probabilities times returns, two heads on one body."
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(543)
    affine, action_head, value_head = nn.Linear(4, 16), nn.Linear(16, 2), nn.Linear(16, 1)
    model = nn.ModuleList([affine, action_head, value_head])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    losses = []
    for _ in range(20):
        log_probs, values, rewards = [], [], []
        for _ in range(5):
            x = F.relu(affine(torch.randn(4)))
            probs = F.softmax(action_head(x), dim=-1)
            action = torch.multinomial(probs.detach(), 1)
            log_probs.append(probs[action].log()), values.append(value_head(x)), rewards.append(float(action.item()))
        returns, R = [], 0
        for r in rewards[::-1]:
            R = r + 0.99 * R
            returns.insert(0, R)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        policy_losses = [-lp * (R - v.item()) for lp, v, R in zip(log_probs, values, returns)]
        value_losses = [F.smooth_l1_loss(v, torch.tensor([R])) for v, R in zip(values, returns.tolist())]
        optimizer.zero_grad()
        loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


@program
def wgan_penalty(torch):
    "A gradient penalty: the gradient of a convolutional critic is itself differentiated."
    nn = torch.nn
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.LeakyReLU(0.2), nn.InstanceNorm2d(4, affine=True), nn.Conv2d(4, 8, 3, 2, 1), nn.Softplus(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
    losses = []
    for _ in range(20):
        real, fake = torch.randn(4, 1, 8, 8), torch.rand(4, 1, 8, 8)
        alpha = torch.rand(4, 1, 1, 1)
        mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        gradients = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
        penalty = ((gradients.view(4, -1).norm(2, dim=1) - 1) ** 2).mean()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, critic


@program
def word2vec(torch):
    "Bags of words, a negative-sampling loss, sparse-looking updates."
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)
    words, contexts = nn.EmbeddingBag(40, 8, mode="sum"), nn.Embedding(40, 8)
    model = nn.ModuleList([words, contexts])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _ in range(20):
        bag, good, bad = torch.randint(0, 40, (6, 4)), torch.randint(0, 40, (6,)), torch.randint(0, 40, (6, 3))
        h = words(bag)
        positive = F.logsigmoid((h * contexts(good)).sum(1))
        negative = F.logsigmoid(-torch.bmm(contexts(bad), h.unsqueeze(2)).squeeze(2)).sum(1)
        loss = -(positive + negative).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


@program
def spoken_digits(torch):
    "Convolutions over sound, a GRU over frames, and CTC."
    nn, F = torch.nn, torch.nn.functional

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Sequential(nn.Conv1d(6, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm1d(8), nn.Hardtanh(0, 20, inplace=True))
            self.gru, self.fc = nn.GRU(8, 8, batch_first=True, bidirectional=True), nn.Linear(16, 5)

        def forward(self, x):
            x, _ = self.gru(self.conv(x).transpose(1, 2))
            return F.log_softmax(self.fc(x), dim=2).transpose(0, 1)

    torch.manual_seed(0)
    model, loss_fn = Model(), nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.Adamax(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        logs = model(torch.randn(4, 6, 24))
        loss = loss_fn(logs, torch.randint(1, 5, (4, 3)), torch.full((4,), 12, dtype=torch.long), torch.randint(1, 4, (4,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


def states(model):
    "The state of a model, or a dictionary of tensors, as arrays."
    found = model.state_dict() if hasattr(model, "state_dict") else model
    return {name: value.detach().numpy().copy() for name, value in found.items()}


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_training(name):
    import torch

    expected, their_model = PROGRAMS[name](torch)
    found, our_model = PROGRAMS[name](autograd_nb)
    assert_same_numbers(found, expected, lambda: PROGRAMS[name](torch)[0], atol=1e-5)
    theirs, ours = states(their_model), states(our_model)
    assert list(ours) == list(theirs)
    for key in ours:
        assert ours[key].shape == theirs[key].shape and ours[key].dtype == theirs[key].dtype
    assert_same_arrays(ours, theirs, lambda: states(PROGRAMS[name](torch)[1]))
    if hasattr(our_model, "load_state_dict"):
        assert repr(our_model) == repr(their_model)
        our_model.load_state_dict({key: autograd_nb.from_numpy(value) for key, value in theirs.items()})
        their_model.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in ours.items()})
        for key, value in states(our_model).items():
            np.testing.assert_array_equal(value, theirs[key])
