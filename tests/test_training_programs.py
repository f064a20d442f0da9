"""Small training programs of the kinds that tutorials teach, run in both libraries: same first weights, same losses step by step."""

import pytest
from _compare import same_draws
from _rounding import assert_same_numbers

import autograd_nb

PROGRAMS = r'''
### digits with convolutions and dropout
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, 1), nn.Conv2d(8, 16, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(16 * 5 * 5, 32), nn.Linear(32, 10)
    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = self.dropout2(F.relu(self.fc1(torch.flatten(x, 1))))
        return F.log_softmax(self.fc2(x), dim=1)
model = Net()
optimizer = optim.Adadelta(model.parameters(), lr=1.0)
scheduler = lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.7)
loader = data.DataLoader(data.TensorDataset(torch.randn(80, 1, 14, 14), torch.randint(0, 10, (80,))), batch_size=16, shuffle=True)
for epoch in range(4):
    for x, target in loader:
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    scheduler.step()

### a polynomial for the sine
x = torch.linspace(-math.pi, math.pi, 200)
y = torch.sin(x)
a, b, c, d = (torch.randn((), requires_grad=True) for _ in range(4))
for t in range(20):
    loss = (a + b * x + c * x ** 2 + d * x ** 3 - y).pow(2).sum()
    losses.append(loss.item())
    loss.backward()
    with torch.no_grad():
        for p in (a, b, c, d):
            p -= 1e-6 * p.grad
            p.grad = None
model = a

### a variational autoencoder
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22, self.fc3, self.fc4 = nn.Linear(64, 40), nn.Linear(40, 5), nn.Linear(40, 5), nn.Linear(5, 40), nn.Linear(40, 64)
    def forward(self, x):
        h = F.relu(self.fc1(x.view(-1, 64)))
        mu, logvar = self.fc21(h), self.fc22(h)
        std = torch.exp(0.5 * logvar)
        z = mu + torch.randn_like(std) * std
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar
model = VAE()
optimizer = optim.Adam(model.parameters(), lr=1e-3)
x = torch.rand(32, 1, 8, 8)
for _ in range(20):
    optimizer.zero_grad()
    recon, mu, logvar = model(x)
    loss = F.binary_cross_entropy(recon, x.view(-1, 64), reduction='sum') - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

### a generator and its critic
def weights_init(m):
    name = m.__class__.__name__
    if name.find('Conv') != -1: nn.init.normal_(m.weight, 0.0, 0.02)
    elif name.find('BatchNorm') != -1:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)
G = nn.Sequential(nn.ConvTranspose2d(10, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True), nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False), nn.Tanh())
D = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(16, 1, 4, 1, 0, bias=False), nn.Sigmoid())
G.apply(weights_init); D.apply(weights_init)
model = nn.ModuleList([G, D])
criterion = nn.BCELoss()
optD, optG = (optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (D, G))
for i in range(10):
    real = torch.rand(8, 1, 8, 8) * 2 - 1
    label = torch.full((8,), 1.0)
    D.zero_grad()
    errD_real = criterion(D(real).view(-1), label)
    errD_real.backward()
    fake = G(torch.randn(8, 10, 1, 1))
    label.fill_(0.0)
    errD_fake = criterion(D(fake.detach()).view(-1), label)
    errD_fake.backward()
    optD.step()
    G.zero_grad()
    label.fill_(1.0)
    errG = criterion(D(fake).view(-1), label)
    errG.backward()
    optG.step()
    losses += [(errD_real + errD_fake).item(), errG.item()]

### waves with LSTM cells and L-BFGS
class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1, self.lstm2, self.linear = nn.LSTMCell(1, 8), nn.LSTMCell(8, 8), nn.Linear(8, 1)
    def forward(self, input):
        outputs = []
        h_t, c_t, h_t2, c_t2 = (torch.zeros(input.size(0), 8, dtype=torch.double) for _ in range(4))
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            outputs += [self.linear(h_t2)]
        return torch.cat(outputs, dim=1)
model = Sequence().double()
wave = torch.sin(torch.arange(20).double() / 2 + torch.arange(4).double()[:, None])
optimizer = optim.LBFGS(model.parameters(), lr=0.8)
for i in range(2):
    def closure():
        optimizer.zero_grad()
        loss = nn.MSELoss()(model(wave[:, :-1]), wave[:, 1:])
        losses.append(loss.item())
        loss.backward()
        return loss
    optimizer.step(closure)

### words with an LSTM
class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(20, 12)
        self.rnn = nn.LSTM(12, 12, 2, dropout=0.2)
        self.decoder = nn.Linear(12, 20)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        return F.log_softmax(self.decoder(self.drop(output)).view(-1, 20), dim=1), hidden
model = RNNModel()
text = torch.randint(0, 20, (8 * 21, 4))
hidden = (torch.zeros(2, 4, 12), torch.zeros(2, 4, 12))
for i in range(0, 160, 8):
    model.zero_grad()
    hidden = tuple(h.detach() for h in hidden)
    output, hidden = model(text[i:i + 8], hidden)
    loss = nn.NLLLoss()(output, text[i + 1:i + 9].view(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters(): p.data.add_(p.grad, alpha=-20)
    losses.append(loss.item())

### a small language model
class Head(nn.Module):
    def __init__(self, n, size, block):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(n, size, bias=False) for _ in range(3))
        self.register_buffer('tril', torch.tril(torch.ones(block, block)))
        self.dropout = nn.Dropout(0.1)
    def forward(self, x):
        B, T, C = x.shape
        wei = self.query(x) @ self.key(x).transpose(-2, -1) * C ** -0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float('-inf'))
        return self.dropout(F.softmax(wei, dim=-1)) @ self.value(x)
class Block(nn.Module):
    def __init__(self, n=16, heads=2, block=8):
        super().__init__()
        self.heads = nn.ModuleList([Head(n, n // heads, block) for _ in range(heads)])
        self.proj, self.dropout = nn.Linear(n, n), nn.Dropout(0.1)
        self.ffwd = nn.Sequential(nn.Linear(n, 4 * n), nn.ReLU(), nn.Linear(4 * n, n), nn.Dropout(0.1))
        self.ln1, self.ln2 = nn.LayerNorm(n), nn.LayerNorm(n)
    def forward(self, x):
        x = x + self.dropout(self.proj(torch.cat([h(self.ln1(x)) for h in self.heads], dim=-1)))
        return x + self.ffwd(self.ln2(x))
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(30, 16), nn.Embedding(8, 16)
        self.blocks, self.ln_f, self.lm_head = nn.Sequential(*[Block() for _ in range(2)]), nn.LayerNorm(16), nn.Linear(16, 30)
        self.apply(self._init_weights)
    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if module.bias is not None: torch.nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding): torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
    def forward(self, idx, targets):
        B, T = idx.shape
        logits = self.lm_head(self.ln_f(self.blocks(self.tok(idx) + self.pos(torch.arange(T)))))
        B, T, C = logits.shape
        return F.cross_entropy(logits.view(B * T, C), targets.view(B * T))
model = GPT()
decay = [p for p in model.parameters() if p.dim() >= 2]; rest = [p for p in model.parameters() if p.dim() < 2]
optimizer = optim.AdamW([{'params': decay, 'weight_decay': 0.1}, {'params': rest, 'weight_decay': 0.0}], lr=1e-3, betas=(0.9, 0.95))
scheduler = lr_scheduler.SequentialLR(optimizer, [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5), lr_scheduler.CosineAnnealingLR(optimizer, 15)], [5])
text = torch.randint(30, (500,))
for _ in range(20):
    ix = torch.randint(len(text) - 8, (4,))
    xb, yb = torch.stack([text[i:i + 8] for i in ix]), torch.stack([text[i + 1:i + 9] for i in ix])
    loss = model(xb, yb)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step(); scheduler.step()
    losses.append(loss.item())

### an encoder of nn's own layers
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        layer = nn.TransformerEncoderLayer(d_model=16, nhead=2, dim_feedforward=32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.out = nn.Linear(16, 3)
    def forward(self, x): return self.out(self.encoder(self.embed(x) * math.sqrt(16)).mean(1))
model = Classifier()
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
x, y = torch.randint(0, 30, (16, 7)), torch.randint(0, 3, (16,))
for _ in range(20):
    optimizer.zero_grad()
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

### an actor and a critic
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1, self.action_head, self.value_head = nn.Linear(4, 16), nn.Linear(16, 2), nn.Linear(16, 1)
    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)
model = Policy()
optimizer = optim.Adam(model.parameters(), lr=3e-2)
for episode in range(10):
    saved, rewards, state = [], [], torch.randn(4)
    for t in range(10):
        probs, value = model(state)
        m = torch.distributions.Categorical(probs)
        action = m.sample()
        saved.append((m.log_prob(action), value))
        rewards.append(1.0 if action.item() == 1 else 0.1)
        state = state * 0.9 + torch.randn(4) * 0.1
    R, returns = 0, []
    for r in rewards[::-1]:
        R = r + 0.99 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    policy_losses = [-lp * (R - v.item()) for (lp, v), R in zip(saved, returns)]
    value_losses = [F.smooth_l1_loss(v, torch.tensor([R])) for (lp, v), R in zip(saved, returns)]
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

### sharper images
class Net(nn.Module):
    def __init__(self, upscale):
        super().__init__()
        self.conv1, self.conv2, self.conv3 = nn.Conv2d(1, 8, (5, 5), (1, 1), (2, 2)), nn.Conv2d(8, 8, (3, 3), (1, 1), (1, 1)), nn.Conv2d(8, upscale ** 2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale)
    def forward(self, x): return self.pixel_shuffle(self.conv3(F.relu(self.conv2(F.relu(self.conv1(x))))))
model = Net(2)
optimizer = optim.RMSprop(model.parameters(), lr=0.001, alpha=0.9)
x, y = torch.rand(4, 1, 6, 6), torch.rand(4, 1, 12, 12)
for _ in range(20):
    optimizer.zero_grad()
    loss = nn.MSELoss()(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

### a residual network
class Basic(nn.Module):
    def __init__(self, i, o, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.short = nn.Sequential() if stride == 1 and i == o else nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))
    def forward(self, x): return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.short(x))
model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), Basic(8, 8), Basic(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))
for m in model.modules():
    if isinstance(m, nn.Conv2d): nn.init.kaiming_normal_(m.weight, mode='fan_out', nonlinearity='relu')
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
scheduler = lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
x, y = torch.randn(8, 3, 8, 8), torch.randint(0, 4, (8,))
for _ in range(20):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())

### learning to learn
model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
meta = optim.Adam(model.parameters(), lr=1e-2)
for _ in range(10):
    meta.zero_grad()
    total = 0.0
    for task in range(3):
        amplitude, phase = torch.rand(1) * 4 + 0.1, torch.rand(1) * math.pi
        x, x2 = torch.rand(10, 1) * 10 - 5, torch.rand(10, 1) * 10 - 5
        y, y2 = amplitude * torch.sin(x + phase), amplitude * torch.sin(x2 + phase)
        params = dict(model.named_parameters())
        inner = F.mse_loss(torch.func.functional_call(model, params, (x,)), y)
        grads = torch.autograd.grad(inner, tuple(params.values()), create_graph=True)
        fast = {k: p - 0.01 * g for (k, p), g in zip(params.items(), grads)}
        outer = F.mse_loss(torch.func.functional_call(model, fast, (x2,)), y2)
        outer.backward()
        total += outer.item()
    meta.step()
    losses.append(total)

### translation with attention
class Encoder(nn.Module):
    def __init__(self): super().__init__(); self.embedding, self.gru = nn.Embedding(12, 8), nn.GRU(8, 8, batch_first=True)
    def forward(self, x): return self.gru(self.embedding(x))
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.Wa, self.Ua, self.Va = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)
        self.gru, self.out = nn.GRU(16, 8, batch_first=True), nn.Linear(8, 12)
    def forward(self, outs, hidden, target):
        step, outputs = torch.zeros(outs.size(0), 1, dtype=torch.long), []
        for i in range(target.size(1)):
            scores = self.Va(torch.tanh(self.Wa(hidden.permute(1, 0, 2)) + self.Ua(outs))).squeeze(2).unsqueeze(1)
            context = torch.bmm(F.softmax(scores, dim=-1), outs)
            o, hidden = self.gru(torch.cat((self.embedding(step), context), dim=2), hidden)
            outputs.append(self.out(o))
            step = target[:, i].unsqueeze(1)
        return F.log_softmax(torch.cat(outputs, dim=1), dim=-1)
encoder, decoder = Encoder(), Decoder()
model = nn.ModuleList([encoder, decoder])
optimizer = optim.Adam(model.parameters(), lr=0.01)
source, target = torch.randint(0, 12, (6, 5)), torch.randint(0, 12, (6, 5))
for _ in range(20):
    optimizer.zero_grad()
    outs, hidden = encoder(source)
    loss = nn.NLLLoss()(decoder(outs, hidden, target).view(-1, 12), target.view(-1))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

### tags of a sentence with a conditional random field
class Tagger(nn.Module):
    def __init__(self, words, tags, width=12):
        super().__init__()
        self.words = nn.Embedding(words, 8)
        self.lstm = nn.LSTM(8, width // 2, bidirectional=True)
        self.scores = nn.Linear(width, tags)
        self.transitions = nn.Parameter(torch.randn(tags, tags))
    def features(self, sentence):
        return self.scores(self.lstm(self.words(sentence).unsqueeze(1))[0].squeeze(1))
    def loss(self, sentence, tags):
        features = self.features(sentence)
        alpha = features[0]
        for f in features[1:]:
            alpha = torch.logsumexp(alpha.view(1, -1) + self.transitions + f.view(-1, 1), dim=1)
        path = features[range(len(tags)), tags].sum() + self.transitions[tags[1:], tags[:-1]].sum()
        return alpha.logsumexp(0) - path
    def best(self, sentence):
        features, back = self.features(sentence), []
        best = features[0]
        for f in features[1:]:
            best, chosen = (best + self.transitions).max(dim=1)
            back.append(chosen)
            best = best + f
        path = [int(best.argmax())]
        for chosen in reversed(back): path.append(chosen[path[-1]].item())
        return path[::-1]
model = Tagger(30, 5)
start(model)
optimizer = optim.SGD(model.parameters(), lr=0.05, weight_decay=1e-4)
sentences = [(torch.randint(30, (n,)), torch.randint(5, (n,))) for n in (7, 4, 9, 5)]
for _ in range(5):
    for words, tags in sentences:
        model.zero_grad()
        loss = model.loss(words, tags)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
with torch.no_grad(): losses += [1 + t for words, _ in sentences for t in model.best(words)]

### sentences of different lengths
class Sentences(data.Dataset):
    def __init__(self, n): self.items = [(torch.randint(1, 20, (int(torch.randint(2, 9, (1,))),)), i % 3) for i in range(n)]
    def __len__(self): return len(self.items)
    def __getitem__(self, i): return self.items[i]
def collate(batch):
    texts, labels = zip(*batch)
    return rnn.pad_sequence(texts, batch_first=True), torch.tensor([len(t) for t in texts]), torch.tensor(labels)
class Reader(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embedding = nn.Embedding(20, 6, padding_idx=0)
        self.recurrent = getattr(nn, kind)(6, 10, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
        self.head = nn.Linear(20, 3)
    def forward(self, x, lengths):
        packed = rnn.pack_padded_sequence(self.embedding(x), lengths, batch_first=True, enforce_sorted=False)
        out, state = self.recurrent(packed)
        state = state[0] if isinstance(state, tuple) else state
        out, lengths = rnn.pad_packed_sequence(out, batch_first=True, total_length=10)
        return self.head(torch.cat([state[-2], state[-1]], dim=1)) + self.head(out.sum(1) / lengths.unsqueeze(1))
items = Sentences(36)
for kind in ('RNN', 'GRU', 'LSTM'):
    model = Reader(kind)
    start(model)
    optimizer = optim.Adagrad(model.parameters(), lr=0.05)
    for order in (dict(shuffle=True), dict(sampler=data.WeightedRandomSampler([1.0 + i % 4 for i in range(36)], 36))):
        for x, lengths, labels in data.DataLoader(items, batch_size=8, collate_fn=collate, drop_last=True, **order):
            loss = F.cross_entropy(model(x, lengths), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

### several answers to one question
class Densities(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.weight, self.mean, self.spread = nn.Linear(1, 20), nn.Linear(20, 4), nn.Linear(20, 4), nn.Linear(20, 4)
    def forward(self, x):
        h = torch.tanh(self.hidden(x))
        return distributions.MixtureSameFamily(distributions.Categorical(logits=self.weight(h)), distributions.Normal(self.mean(h), self.spread(h).exp()))
model = Densities()
start(model)
optimizer = optim.Adam(model.parameters(), lr=0.01)
x = torch.linspace(-2, 2, 60)
y = 2 * torch.sin(3 * x) + 0.1 * torch.randn(60)
for _ in range(20):
    loss = -model(y.unsqueeze(1)).log_prob(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with torch.no_grad(): losses += [3 + v.abs() for v in model(y.unsqueeze(1)).sample()]

### a flow from noise to a banana
class Coupling(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.register_buffer('mask', torch.tensor([1.0, 0.0] if first else [0.0, 1.0]))
        self.net = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 4))
    def forward(self, x):
        scale, shift = self.net(x * self.mask).chunk(2, dim=-1)
        scale, shift = torch.tanh(scale) * (1 - self.mask), shift * (1 - self.mask)
        return x * scale.exp() + shift, scale.sum(-1)
model = nn.ModuleList([Coupling(i % 2) for i in range(4)])
start(model)
base = distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
optimizer = optim.Adam(model.parameters(), lr=5e-3)
for _ in range(20):
    z = torch.randn(64, 2)
    z, volume = torch.stack([z[:, 0], z[:, 1] + z[:, 0] ** 2], dim=1), 0
    for layer in model:
        z, change = layer(z)
        volume = volume + change
    loss = -(base.log_prob(z) + volume).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

### learning to learn, by functions
model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
start(model)
weights = {k: v.detach().clone().requires_grad_() for k, v in model.named_parameters()}
optimizer = optim.Adam(weights.values(), lr=1e-2)
def error(w, x, y): return F.mse_loss(torch.func.functional_call(model, w, (x,)), y)
def after_one_step(phase, x, other):
    slope = torch.func.grad(error)(weights, x, torch.sin(x + phase))
    return error({k: weights[k] - 0.1 * slope[k] for k in weights}, other, torch.sin(other + phase))
for _ in range(20):
    loss = torch.func.vmap(after_one_step)(torch.rand(5) * 3, torch.randn(5, 8, 1), torch.randn(5, 8, 1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

### a helper that stays
loader = data.DataLoader(data.TensorDataset(torch.randn(40, 6), torch.randint(3, (40,))), batch_size=8, shuffle=True, num_workers=1, persistent_workers=True)
model = nn.Linear(6, 3)
start(model)
optimizer = optim.Adamax(model.parameters(), lr=0.01)
for epoch in range(4):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

### a critic with bounded weights
model = nn.Sequential(nn.utils.spectral_norm(nn.Linear(16, 24)), nn.LeakyReLU(0.1), nn.utils.parametrizations.spectral_norm(nn.Linear(24, 16)), nn.ReLU(), nn.utils.parametrizations.weight_norm(nn.Linear(16, 1)))
optimizer = optim.Adam(model.parameters(), lr=2e-3, betas=(0.0, 0.9))
for _ in range(20):
    real, fake = torch.randn(10, 16), torch.rand(10, 16)
    loss = F.relu(1 - model(real)).mean() + F.relu(1 + model(fake)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

### down and up again
def twice(i, o): return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1), nn.GroupNorm(2, o), nn.SiLU())
class Segmenter(nn.Module):
    def __init__(self, smooth):
        super().__init__()
        self.inside, self.down, self.bottom, self.joined, self.last = twice(3, 8), nn.MaxPool2d(2), twice(8, 16), twice(16, 8), nn.Conv2d(8, 2, 1)
        self.up = nn.Sequential(nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True), nn.Conv2d(16, 8, 1)) if smooth else nn.ConvTranspose2d(16, 8, 2, stride=2)
    def forward(self, x):
        wide = self.inside(x)
        up = self.up(self.bottom(self.down(wide)))
        h, w = wide.shape[2] - up.shape[2], wide.shape[3] - up.shape[3]
        return self.last(self.joined(torch.cat([wide, F.pad(up, [w // 2, w - w // 2, h // 2, h - h // 2])], dim=1)))
for smooth in (True, False):
    model = Segmenter(smooth).to(memory_format=torch.channels_last)
    start(model)
    optimizer = optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-8)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, 'max', patience=2)
    for _ in range(10):
        x, y = torch.rand(2, 3, 15, 18), torch.randint(0, 2, (2, 15, 18))
        out = model(x)
        both, truth = out.softmax(1), F.one_hot(y, 2).permute(0, 3, 1, 2).float()
        loss = F.cross_entropy(out, y) + 1 - 2 * (both * truth).sum() / (both.sum() + truth.sum())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step(loss)
        losses.append(loss.item())

### what the teacher knows
teacher = nn.Sequential(nn.Linear(12, 40), nn.Hardswish(), nn.Linear(40, 6)).eval().requires_grad_(False)
model = nn.Sequential(nn.Linear(12, 8), nn.ELU(), nn.Dropout(0.1), nn.Linear(8, 6))
start(teacher, model)
optimizer = optim.AdamW(model.parameters(), lr=5e-3, amsgrad=True)
averaged = optim.swa_utils.AveragedModel(model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.9))
for _ in range(20):
    x, y = torch.randn(32, 12), torch.randint(6, (32,))
    out = model(x)
    soft = nn.KLDivLoss(reduction='batchmean')(F.log_softmax(out / 2, dim=-1), F.softmax(teacher(x) / 2, dim=-1)) * 4
    loss = 0.7 * soft + 0.3 * F.cross_entropy(out, y, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    averaged.update_parameters(model)
    losses.append(loss.item())
with torch.no_grad(): losses.append(averaged.eval()(x).abs().sum().item())

### learning rates of all kinds
schedules = (lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o, 0.1, total_iters=4), lr_scheduler.CosineAnnealingLR(o, 12)], milestones=[4]),
             lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(o, 0.5, 3), lr_scheduler.ExponentialLR(o, 0.9)]),
             lambda o: lr_scheduler.CyclicLR(o, 1e-3, 1e-1, 4, mode='triangular2'), lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5, 2),
             lambda o: lr_scheduler.OneCycleLR(o, 0.1, epochs=2, steps_per_epoch=10, three_phase=True), lambda o: lr_scheduler.LambdaLR(o, [lambda e: 0.9 ** e, lambda e: 1 / (1 + e)]))
for make in schedules:
    model = nn.Sequential(nn.Linear(5, 8), nn.Mish(), nn.Linear(8, 2))
    start(model)
    optimizer = optim.SGD([{'params': model[0].parameters()}, {'params': model[2].parameters(), 'lr': 0.02}], lr=0.05, momentum=0.9)
    scheduler = make(optimizer)
    for _ in range(20):
        loss = F.huber_loss(model(torch.randn(7, 5)), torch.ones(7, 2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses += [loss.item(), *scheduler.get_last_lr()]

### pictures in patches
class Layer(nn.Module):
    def __init__(self, width, drop):
        super().__init__()
        self.drop, self.norm1, self.norm2 = drop, nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
    def skip(self, x):
        keep = x.new_empty((x.shape[0], 1, 1)).bernoulli_(1 - self.drop) / (1 - self.drop)
        return x * keep if self.training else x
    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, n, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        mixed = ((q @ k.transpose(-2, -1)) / math.sqrt(c // 4)).softmax(-1) @ v
        x = x + self.skip(self.out(mixed.transpose(1, 2).reshape(b, n, c)))
        return x + self.skip(self.think(self.norm2(x)))
class Vision(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.patches, self.first = nn.Conv2d(3, width, 4, stride=4), nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, 17, width))
        self.layers, self.norm, self.head = nn.Sequential(*[Layer(width, d.item()) for d in torch.linspace(0, 0.2, 3)]), nn.LayerNorm(width), nn.Linear(width, 10)
        self.apply(self.begin)
        for p in (self.first, self.places): nn.init.trunc_normal_(p, std=0.02)
    def begin(self, m):
        if isinstance(m, nn.Linear):
            nn.init.trunc_normal_(m.weight, std=0.02)
            nn.init.zeros_(m.bias)
    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])
model = Vision()
start(model)
optimizer = optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
x, y = torch.randn(12, 3, 16, 16), torch.randint(10, (12,))
for _ in range(20):
    order, share = torch.randperm(12), 0.7
    soft = share * F.one_hot(y, 10).float() + (1 - share) * F.one_hot(y[order], 10).float()
    loss = F.cross_entropy(model(share * x + (1 - share) * x[order]), soft)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

### half precision with a scaled loss
model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 4))
start(model)
optimizer, scaler = optim.SGD(model.parameters(), lr=0.01), amp.GradScaler('cpu', init_scale=2.0 ** 12, growth_interval=3)
for step in range(20):
    with torch.autocast('cpu', dtype=torch.bfloat16):
        out = model(torch.randn(6, 8))
        loss = F.mse_loss(out, torch.ones(6, 4, dtype=torch.bfloat16))
    assert out.dtype is torch.bfloat16 and loss.dtype is torch.float32
    optimizer.zero_grad()
    scaler.scale(loss * (math.inf if step in (5, 11) else 1)).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    losses += [round(loss.item(), 1), scaler.get_scale()]

### a network that straightens its pictures
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(1, 8, 7), nn.MaxPool2d(2), nn.ReLU(True), nn.Conv2d(8, 10, 5), nn.MaxPool2d(2), nn.ReLU(True))
        self.place = nn.Sequential(nn.Linear(10 * 3 * 3, 32), nn.ReLU(True), nn.Linear(32, 6))
        self.place[2].weight.data.zero_()
        self.place[2].bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))
        self.conv1, self.conv2, self.drop = nn.Conv2d(3, 10, 5), nn.Conv2d(10, 20, 5), nn.Dropout2d()
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)
    def forward(self, x):
        theta = self.place(self.look(x).view(-1, 10 * 3 * 3)).view(-1, 2, 3)
        x = F.grid_sample(x, F.affine_grid(theta, x.size(), align_corners=False), align_corners=False)
        down, across = torch.meshgrid(torch.linspace(-1, 1, 28), torch.linspace(-1, 1, 28), indexing='ij')
        x = torch.cat([x, across.expand(len(x), 1, -1, -1), down.expand(len(x), 1, -1, -1)], 1)
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.drop(self.conv2(x)), 2)).view(-1, 320)
        return F.log_softmax(self.fc2(F.dropout(F.relu(self.fc1(x)), training=self.training)), dim=1)
model = Net()
start(model)
optimizer = optim.SGD(model.parameters(), lr=0.05)
for _ in range(12):
    x, y = torch.randn(8, 1, 28, 28), torch.randint(10, (8,))
    optimizer.zero_grad()
    loss = F.nll_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

### positions as turned complex numbers
class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
    def forward(self, x): return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * self.weight
def turns(width, steps):
    speed = 1.0 / (10000.0 ** (torch.arange(0, width, 2)[: width // 2].float() / width))
    angles = torch.outer(torch.arange(steps), speed).float()
    return torch.polar(torch.ones_like(angles), angles)
def turned(q, by):
    q_ = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
    return torch.view_as_real(q_ * by.view(1, q_.shape[1], 1, q_.shape[3])).flatten(3).type_as(q)
class Block(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, Norm(width), nn.RMSNorm(width, eps=1e-6)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.w1, self.w2, self.w3 = nn.Linear(width, 40, bias=False), nn.Linear(40, width, bias=False), nn.Linear(width, 40, bias=False)
    def forward(self, x, by):
        b, t, c = x.shape
        y = self.norm1(x)
        q, k, v = (w(y).view(b, t, self.heads, c // self.heads) for w in (self.wq, self.wk, self.wv))
        q, k = turned(q, by), turned(k, by)
        mask = torch.triu(torch.full((t, t), float("-inf")), diagonal=1)
        scores = torch.matmul(q.transpose(1, 2), k.transpose(1, 2).transpose(2, 3)) / math.sqrt(c // self.heads) + mask
        x = x + self.wo(torch.matmul(F.softmax(scores.float(), dim=-1).type_as(q), v.transpose(1, 2)).transpose(1, 2).contiguous().view(b, t, -1))
        y = self.norm2(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))
class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layers, self.norm, self.output = nn.Embedding(30, 16), nn.ModuleList(Block() for _ in range(2)), Norm(16), nn.Linear(16, 30, bias=False)
        self.by = turns(8, 12)
    def forward(self, tokens):
        h = self.words(tokens)
        for layer in self.layers: h = layer(h, self.by[: tokens.shape[1]])
        return self.output(self.norm(h)).float()
model = Llama()
start(model)
optimizer = optim.NAdam(model.parameters(), lr=5e-3)
for _ in range(15):
    tokens = torch.randint(30, (4, 9))
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
'''


def programs():
    return {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in PROGRAMS.strip().removeprefix("### ").split("\n### ")}


def run(t, source):
    import importlib
    import math

    t.manual_seed(42)
    for module in ("distributions", "optim.swa_utils", "func"):
        importlib.import_module(f"{t.__name__}.{module}")
    first = []

    def start(*models):
        first.extend((k, v.numpy().copy()) for m in models for k, v in m.state_dict().items())

    names = dict(torch=t, nn=t.nn, F=t.nn.functional, rnn=t.nn.utils.rnn, optim=t.optim, lr_scheduler=t.optim.lr_scheduler, data=t.utils.data, amp=t.amp, distributions=t.distributions, math=math, losses=[], start=start)
    exec(source, names)
    return names["losses"], names["model"], first


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", programs())
def test_same_losses(name):
    import torch

    expected, theirs, their_first = run(torch, programs()[name])
    found, ours, our_first = run(autograd_nb, programs()[name])
    assert [key for key, _ in our_first] == [key for key, _ in their_first]
    for (key, mine), (_, other) in zip(our_first, their_first, strict=True):
        same_draws(mine, other, err_msg=key)
    assert len(found) == len(expected) >= 10
    assert_same_numbers(found, expected, lambda: run(torch, programs()[name])[0])
    if hasattr(ours, "state_dict"):
        assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs) or not hasattr(ours, "state_dict")
