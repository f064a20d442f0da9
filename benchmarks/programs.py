"""Training and inference programs as somebody writes them who has never seen this library.

Each is a function of a module under PyTorch's names that returns a step: a function without arguments
that returns the loss, or what else the program computes. benchmarks/strangers.py times them. They are
measured, never tuned: what is slow here is mended by its kind, for every program alike.
"""
import math


# ---------------------------------------------------------------- attention and transformers

def batches(torch, vocabulary, size, length):
    """Tokens and their successors."""
    tokens = torch.randint(0, vocabulary, (size, length + 1))
    return tokens[:, :-1], tokens[:, 1:]


def causal_attention(torch, q, k, v, mask, drop):
    """Softmax attention from its formula."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    scores = scores.masked_fill(mask, float('-inf'))
    return drop(torch.softmax(scores, dim=-1)) @ v


def handwritten_transformer(torch, width=128, layers=2, heads=4, length=64, size=8, vocabulary=96):
    """A small GPT: attention and GELU from their formulas, dropout, clipping, parameter groups."""
    nn = torch.nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.drop = nn.Dropout(0.1)
            mask = torch.triu(torch.ones(length, length), diagonal=1).bool()
            self.register_buffer('mask', mask)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(x).chunk(3, dim=-1)
            q, k, v = (z.view(b, t, heads, c // heads).transpose(1, 2) for z in (q, k, v))
            y = causal_attention(torch, q, k, v, self.mask[:t, :t], self.drop)
            return self.out(y.transpose(1, 2).contiguous().view(b, t, c))

    class NewGELU(nn.Module):
        def forward(self, x):
            inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
            return 0.5 * x * (1.0 + torch.tanh(inner))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = Attention()
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), NewGELU(),
                                     nn.Linear(4 * width, width), nn.Dropout(0.1))

        def forward(self, x):
            x = x + self.attention(self.ln1(x))
            return x + self.mlp(self.ln2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, width)
            self.positions = nn.Embedding(length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary, bias=False)

        def forward(self, index):
            x = self.tokens(index) + self.positions(torch.arange(index.size(1)))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    model = GPT()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{'params': decay, 'weight_decay': 0.1},
                                   {'params': rest, 'weight_decay': 0.0}], lr=3e-4)
    x, y = batches(torch, vocabulary, size, length)

    def step():
        optimizer.zero_grad(set_to_none=True)
        logits = model(x)
        loss = nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), y.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss
    return step


def rotary_transformer(torch, width=96, layers=2, heads=3, length=64, size=4, vocabulary=256):
    """As newer language models: rotary positions, RMS norm and gated units from formulas."""
    nn, F = torch.nn, torch.nn.functional
    head = width // heads

    class RMSNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight

    frequencies = 1.0 / (10000 ** (torch.arange(0, head, 2).float() / head))
    angles = torch.outer(torch.arange(length).float(), frequencies)
    cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
    mask = torch.full((length, length), float('-inf')).triu(1)

    def rotate(x):
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = RMSNorm(), RMSNorm()
            self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
            self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
            self.down = nn.Linear(2 * width, width, bias=False)

        def forward(self, x):
            b, t, _ = x.shape
            h = self.norm1(x)
            q, k, v = (f(h).view(b, t, heads, head).transpose(1, 2)
                       for f in (self.q, self.k, self.v))
            scores = rotate(q) @ rotate(k).transpose(2, 3) / math.sqrt(head) + mask
            y = F.softmax(scores, dim=-1) @ v
            x = x + self.o(y.transpose(1, 2).reshape(b, t, width))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    embed = nn.Embedding(vocabulary, width)
    blocks, norm = nn.Sequential(*(Block() for _ in range(layers))), RMSNorm()
    parameters = [*embed.parameters(), *blocks.parameters(), *norm.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95))
    x, y = batches(torch, vocabulary, size, length)

    def step():
        logits = norm(blocks(embed(x))) @ embed.weight.T
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


def encoder_layers(torch, width=64, length=32, size=16):
    """The library's own encoder with its dropout, for classes of sequences."""
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
    encoder, head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(width, 5)
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    x, y = torch.randn(size, length, width), torch.randint(0, 5, (size,))

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(head(encoder(x).mean(1)), y)
        loss.backward()
        optimizer.step()
        return loss
    return step


def vision_transformer(torch, width=96, size=8):
    """Patches by a strided convolution, `nn.MultiheadAttention`, a class token."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(),
                                     nn.Linear(2 * width, width))

        def forward(self, x):
            h = self.norm1(x)
            x = x + self.attention(h, h, h, need_weights=False)[0]
            return x + self.mlp(self.norm2(x))

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, width, 4, stride=4)
            self.token = nn.Parameter(torch.zeros(1, 1, width))
            self.place = nn.Parameter(torch.randn(1, 65, width) * 0.02)
            self.blocks = nn.Sequential(Block(), Block())
            self.head = nn.Linear(width, 10)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(x.size(0), -1, -1), x], dim=1) + self.place
            return self.head(self.blocks(x)[:, 0])

    model = ViT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(size, 3, 32, 32), torch.randint(0, 10, (size,))
    return supervised(torch, model, optimizer, x, y)


def generation(torch, cached, width=64, heads=4, prompt=8, new=24, vocabulary=128):
    """Sampling token by token without gradients, with keys and values kept or computed again."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                     nn.Linear(4 * width, width))

        def forward(self, x, past):
            b, t, _ = x.shape
            q, k, v = (z.view(b, t, heads, -1).transpose(1, 2)
                       for z in self.qkv(self.norm1(x)).chunk(3, -1))
            if past is not None:
                k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
            ahead = torch.ones(t, k.size(2), dtype=torch.bool).triu(1 + k.size(2) - t)
            y = causal_attention(torch, q, k, v, ahead, nn.Identity())
            x = x + self.out(y.transpose(1, 2).reshape(b, t, width))
            return x + self.mlp(self.norm2(x)), (k, v)

    embed, place = nn.Embedding(vocabulary, width), nn.Embedding(prompt + new, width)
    blocks, head = nn.ModuleList([Block(), Block()]), nn.Linear(width, vocabulary)
    start = torch.randint(0, vocabulary, (1, prompt))

    @torch.no_grad()
    def step():
        tokens, fresh, past = start, start, [None, None]
        for _ in range(new):
            x = embed(fresh) + place(torch.arange(tokens.size(1) - fresh.size(1), tokens.size(1)))
            for k, block in enumerate(blocks):
                x, kept = block(x, past[k])
                if cached:
                    past[k] = kept
            shares = torch.softmax(head(x[:, -1]) / 0.8, dim=-1)
            following = shares.argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, following], dim=1)
            fresh = following if cached else tokens
        return tokens
    return step


# ---------------------------------------------------------------- sequences

def lstm_language_model(torch, vocabulary=4000, width=96, length=24, size=12):
    """Embedding, LSTM and a softmax over thousands of words, clipped and trained by SGD."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.drop = nn.Embedding(vocabulary, width), nn.Dropout(0.2)
            self.lstm = nn.LSTM(width, width, num_layers=1, batch_first=True)
            self.head = nn.Linear(width, vocabulary)

        def forward(self, x):
            out, _ = self.lstm(self.drop(self.embed(x)))
            return self.head(self.drop(out))

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    x, y = batches(torch, vocabulary, size, length)

    def step():
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(x).reshape(-1, vocabulary), y.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        return loss
    return step


def gru_classifier(torch, width=64, length=40, size=32):
    """A bidirectional GRU over sequences; the last states decide."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRU(12, width, bidirectional=True, batch_first=True)
            self.head = nn.Linear(2 * width, 4)

        def forward(self, x):
            _, h = self.gru(x)
            return self.head(torch.cat([h[0], h[1]], dim=1))

    model = Model()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    x, y = torch.randn(size, length, 12), torch.randint(0, 4, (size,))
    return supervised(torch, model, optimizer, x, y)


def lstm_cells(torch, width=48, length=30, size=16):
    """Two LSTM cells in a loop of Python, which predict waves."""
    nn = torch.nn
    first, second, head = nn.LSTMCell(1, width), nn.LSTMCell(width, width), nn.Linear(width, 1)
    parameters = [*first.parameters(), *second.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    waves = torch.sin(torch.arange(length + 1.0) / 3 + torch.rand(size, 1) * 6)

    def step():
        h1, c1, h2, c2 = (torch.zeros(size, width) for _ in range(4))
        outputs = []
        for part in waves[:, :-1].split(1, dim=1):
            h1, c1 = first(part, (h1, c1))
            h2, c2 = second(h1, (h2, c2))
            outputs.append(head(h2))
        loss = nn.functional.mse_loss(torch.cat(outputs, dim=1), waves[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


def recurrence_by_formula(torch, width=64, length=25, vocabulary=40):
    """Characters one at a time through a tanh recurrence; gradients clamped by hand."""
    embed = torch.randn(vocabulary, width) * 0.01
    across, out = torch.randn(width, width) * 0.1, torch.randn(width, vocabulary) * 0.1
    bias, top = torch.zeros(width), torch.zeros(vocabulary)
    parameters = [p.requires_grad_() for p in (embed, across, out, bias, top)]
    text = torch.randint(0, vocabulary, (length + 1,))
    memory = [torch.zeros_like(p) for p in parameters]

    def step():
        h, loss = torch.zeros(1, width), 0.0
        for t in range(length):
            h = torch.tanh(embed[text[t]] + h @ across + bias)
            logits = h @ out + top
            loss = loss - torch.log_softmax(logits, dim=1)[0, text[t + 1]]
        for p in parameters:
            p.grad = None
        loss.backward()
        with torch.no_grad():
            for p, m in zip(parameters, memory):
                g = p.grad.clamp_(-5, 5)
                m += g * g
                p -= 0.01 * g / torch.sqrt(m + 1e-8)
        return loss
    return step


def translation_with_attention(torch, vocabulary=200, width=64, length=12, size=16):
    """Encoder and decoder of GRU cells with additive attention, fed the right words."""
    nn, F = torch.nn, torch.nn.functional
    source, target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
    encoder = nn.GRU(width, width, batch_first=True)
    cell, head = nn.GRUCell(2 * width, width), nn.Linear(2 * width, vocabulary)
    query, key, score = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)
    parts = nn.ModuleList([source, target, encoder, cell, head, query, key, score])
    optimizer = torch.optim.Adam(parts.parameters(), lr=1e-3)
    x, y = batches(torch, vocabulary, size, length)

    def step():
        states, h = encoder(source(x))
        h, keys, logits = h[0], key(states), []
        for t in range(length):
            weights = score(torch.tanh(query(h).unsqueeze(1) + keys)).softmax(dim=1)
            context = torch.bmm(weights.transpose(1, 2), states).squeeze(1)
            h = cell(torch.cat([target(x[:, t]), context], dim=1), h)
            logits.append(head(torch.cat([h, context], dim=1)))
        loss = F.cross_entropy(torch.stack(logits, dim=1).transpose(1, 2), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parts.parameters(), 1.0)
        optimizer.step()
        return loss
    return step


def word_vectors(torch, vocabulary=5000, width=64, size=256, negatives=8):
    """Skip-grams with negative samples: lookups, small batched products, log-sigmoids."""
    nn, F = torch.nn, torch.nn.functional
    centre, around = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
    optimizer = torch.optim.Adagrad([*centre.parameters(), *around.parameters()], lr=0.1)
    words, context = torch.randint(0, vocabulary, (2, size))
    others = torch.randint(0, vocabulary, (size, negatives))

    def step():
        v = centre(words)
        positive = F.logsigmoid((v * around(context)).sum(1))
        negative = F.logsigmoid(-torch.bmm(around(others), v.unsqueeze(2)).squeeze(2)).sum(1)
        loss = -(positive + negative).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


# ---------------------------------------------------------------- images

def supervised(torch, model, optimizer, x, y):
    """The step of every tutorial."""
    criterion = torch.nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return step


def residual_network(torch, size=16):
    """Residual blocks with batch norm on small images; SGD with momentum and weight decay."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inside, outside, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
            self.bn1, self.bn2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
            self.shortcut = nn.Sequential()
            if stride > 1 or inside != outside:
                self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False),
                                              nn.BatchNorm2d(outside))

        def forward(self, x):
            y = torch.relu(self.bn1(self.conv1(x)))
            return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))

    model = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                          Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    return supervised(torch, model, optimizer, torch.randn(size, 3, 24, 24),
                      torch.randint(0, 10, (size,)))


def style_network(torch, size=2):
    """Image to image: reflection padding, instance norm, strided and transposed convolutions."""
    nn = torch.nn

    def conv(inside, outside, kernel, stride):
        return nn.Sequential(nn.ReflectionPad2d(kernel // 2),
                             nn.Conv2d(inside, outside, kernel, stride),
                             nn.InstanceNorm2d(outside, affine=True), nn.ReLU())

    def wider(inside, outside):
        return nn.Sequential(nn.ConvTranspose2d(inside, outside, 3, 2, 1, 1),
                             nn.InstanceNorm2d(outside, affine=True), nn.ReLU())

    class Residual(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.body = nn.Sequential(conv(channels, channels, 3, 1), nn.ReflectionPad2d(1),
                                      nn.Conv2d(channels, channels, 3),
                                      nn.InstanceNorm2d(channels, affine=True))

        def forward(self, x):
            return x + self.body(x)

    model = nn.Sequential(conv(3, 16, 7, 1), conv(16, 32, 3, 2), Residual(32), Residual(32),
                          wider(32, 16), nn.ReflectionPad2d(3), nn.Conv2d(16, 3, 7), nn.Tanh())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.5, 0.999))
    x, y = torch.randn(size, 3, 48, 48), torch.rand(size, 3, 48, 48)

    def step():
        optimizer.zero_grad()
        out = model(x)
        smooth = (out[..., 1:] - out[..., :-1]).abs().mean()
        loss = nn.functional.l1_loss(out, y) + 0.1 * smooth
        loss.backward()
        optimizer.step()
        return loss
    return step


def separable_convolutions(torch, size=16):
    """Depthwise and pointwise convolutions, ReLU6, inverted bottlenecks."""
    nn = torch.nn

    def block(inside, outside, stride):
        middle = 4 * inside
        return nn.Sequential(
            nn.Conv2d(inside, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU6(),
            nn.Conv2d(middle, middle, 3, stride, 1, groups=middle, bias=False),
            nn.BatchNorm2d(middle), nn.ReLU6(),
            nn.Conv2d(middle, outside, 1, bias=False), nn.BatchNorm2d(outside))

    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), block(8, 16, 1), block(16, 24, 2),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
    return supervised(torch, model, optimizer, torch.randn(size, 3, 32, 32),
                      torch.randint(0, 10, (size,)))


def dilated_sound(torch, channels=24, length=256, size=8):
    """Gated, dilated, causal convolutions over sound with skip connections."""
    nn, F = torch.nn, torch.nn.functional

    class Layer(nn.Module):
        def __init__(self, dilation):
            super().__init__()
            self.dilation = dilation
            self.both = nn.Conv1d(channels, 2 * channels, 2, dilation=dilation)
            self.mix = nn.Conv1d(channels, channels, 1)

        def forward(self, x):
            gate, value = self.both(F.pad(x, (self.dilation, 0))).chunk(2, dim=1)
            y = self.mix(torch.tanh(value) * torch.sigmoid(gate))
            return x + y, y

    start, layers = nn.Conv1d(1, channels, 1), nn.ModuleList([Layer(2 ** k) for k in range(6)])
    end = nn.Conv1d(channels, 32, 1)
    parts = nn.ModuleList([start, layers, end])
    optimizer = torch.optim.Adam(parts.parameters(), lr=1e-3)
    sound, levels = torch.randn(size, 1, length), torch.randint(0, 32, (size, length))

    def step():
        x, skips = start(sound), 0
        for layer in layers:
            x, skip = layer(x)
            skips = skips + skip
        loss = F.cross_entropy(end(F.relu(skips)), levels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


def segmentation(torch, size=4):
    """A U-shaped network: group norm, pooling, bilinear upsampling, concatenated skips."""
    nn, F = torch.nn, torch.nn.functional

    def double(inside, outside):
        return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.GroupNorm(4, outside),
                             nn.SiLU(), nn.Conv2d(outside, outside, 3, padding=1),
                             nn.GroupNorm(4, outside), nn.SiLU())

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down1, self.down2, self.low = double(1, 12), double(12, 24), double(24, 32)
            self.up2, self.up1 = double(32 + 24, 24), double(24 + 12, 12)
            self.head = nn.Conv2d(12, 1, 1)

        def forward(self, x):
            a = self.down1(x)
            b = self.down2(F.max_pool2d(a, 2))
            c = self.low(F.max_pool2d(b, 2))
            up = {'scale_factor': 2, 'mode': 'bilinear', 'align_corners': False}
            b = self.up2(torch.cat([F.interpolate(c, **up), b], dim=1))
            return self.head(self.up1(torch.cat([F.interpolate(b, **up), a], dim=1)))

    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(size, 1, 32, 32), (torch.rand(size, 1, 32, 32) > 0.5).float()

    def step():
        optimizer.zero_grad()
        logits = model(x)
        shares = torch.sigmoid(logits)
        dice = 1 - (2 * (shares * y).sum() + 1) / (shares.sum() + y.sum() + 1)
        loss = F.binary_cross_entropy_with_logits(logits, y) + dice
        loss.backward()
        optimizer.step()
        return loss
    return step


def adversaries(torch, size=16):
    """Generator and discriminator of transposed and strided convolutions, two optimisers."""
    nn = torch.nn
    generator = nn.Sequential(
        nn.ConvTranspose2d(32, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(True),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
        nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Tanh())
    judge = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2),
        nn.Conv2d(32, 1, 4, 1, 0), nn.Flatten())
    first = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    second = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion, real = nn.BCEWithLogitsLoss(), torch.randn(size, 1, 16, 16)
    ones, zeros = torch.ones(size, 1), torch.zeros(size, 1)

    def step():
        fake = generator(torch.randn(size, 32, 1, 1))
        judge.zero_grad()
        loss = criterion(judge(real), ones) + criterion(judge(fake.detach()), zeros)
        loss.backward()
        second.step()
        generator.zero_grad()
        criterion(judge(fake), ones).backward()
        first.step()
        return loss
    return step


def denoising(torch, size=8):
    """A diffusion model's step: noise at random times, sinusoidal embeddings, nearest upsampling."""
    nn, F = torch.nn, torch.nn.functional

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 32))
            self.down = nn.Conv2d(1, 32, 3, stride=2, padding=1)
            self.middle, self.norm = nn.Conv2d(32, 32, 3, padding=1), nn.GroupNorm(8, 32)
            self.up, self.out = nn.Upsample(scale_factor=2), nn.Conv2d(32, 1, 3, padding=1)

        def forward(self, x, t):
            scale = torch.exp(torch.arange(16) * (-math.log(10000) / 16))
            angles = t[:, None].float() * scale[None]
            t = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
            x = self.down(x) + t[:, :, None, None]
            return self.out(self.up(x + F.silu(self.norm(self.middle(x)))))

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 200), dim=0)
    x = torch.randn(size, 1, 32, 32)

    def step():
        t, noise = torch.randint(0, 200, (size,)), torch.randn_like(x)
        share = kept[t][:, None, None, None]
        mixed = share.sqrt() * x + (1 - share).sqrt() * noise
        loss = F.mse_loss(model(mixed, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


# ---------------------------------------------------------------- graphs, tables, sets

def dense_graph_attention(torch, nodes=200, width=32, heads=4):
    """Graph attention over an adjacency matrix with masked weights and dropout."""
    nn, F = torch.nn, torch.nn.functional

    class Layer(nn.Module):
        def __init__(self, inside, outside):
            super().__init__()
            self.w = nn.Parameter(torch.randn(heads, inside, outside) * 0.1)
            self.a = nn.Parameter(torch.randn(heads, 2 * outside, 1) * 0.1)
            self.outside = outside

        def forward(self, x, adjacency):
            h = torch.matmul(x, self.w)
            left, right = h @ self.a[:, :self.outside], h @ self.a[:, self.outside:]
            e = F.leaky_relu(left + right.transpose(1, 2), 0.2)
            e = torch.where(adjacency > 0, e, torch.full_like(e, -9e15))
            weights = F.dropout(F.softmax(e, dim=-1), 0.3, self.training)
            return F.elu(weights @ h).permute(1, 0, 2).reshape(x.size(0), -1)

    one, two = Layer(24, width // heads), Layer(width, width // heads)
    head = nn.Linear(width, 5)
    parts = nn.ModuleList([one, two, head])
    optimizer = torch.optim.Adam(parts.parameters(), lr=5e-3, weight_decay=5e-4)
    x, labels = torch.randn(nodes, 24), torch.randint(0, 5, (nodes,))
    adjacency = ((torch.rand(nodes, nodes) < 0.05).float() + torch.eye(nodes)).clamp(max=1)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(head(two(one(F.dropout(x, 0.3), adjacency), adjacency)), labels)
        loss.backward()
        optimizer.step()
        return loss
    return step


def graph_by_index(torch, nodes=300, edges=1500, width=32):
    """Messages along lists of edges: gathered, weighted by a softmax per node, added up."""
    nn, F = torch.nn, torch.nn.functional
    source, target = torch.randint(0, nodes, (2, edges))
    enter, leave = nn.Linear(16, width), nn.Linear(width, 3)
    message, score = nn.Linear(2 * width, width), nn.Linear(width, 1)
    parts = nn.ModuleList([enter, leave, message, score])
    optimizer = torch.optim.Adam(parts.parameters(), lr=1e-2)
    x, labels = torch.randn(nodes, 16), torch.randint(0, 3, (nodes,))

    def step():
        h = F.relu(enter(x))
        for _ in range(2):
            m = F.relu(message(torch.cat([h[source], h[target]], dim=1)))
            weight = torch.exp(score(m).squeeze(1))
            total = torch.zeros(nodes).index_add(0, target, weight)
            m = m * (weight / (total[target] + 1e-9)).unsqueeze(1)
            summed = torch.zeros(nodes, width)
            h = h + summed.scatter_add(0, target.unsqueeze(1).expand(-1, width), m)
        loss = F.nll_loss(F.log_softmax(leave(h), dim=1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


def tabular(torch, size=128):
    """Columns of categories embedded and put beside numbers; an MLP with batch norm."""
    nn, F = torch.nn, torch.nn.functional
    counts = (50, 200, 12, 7, 1000, 31)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embeds = nn.ModuleList([nn.Embedding(n, min(24, n // 2)) for n in counts])
            width = sum(e.embedding_dim for e in self.embeds) + 10
            self.mlp = nn.Sequential(
                nn.Linear(width, 128), nn.ReLU(), nn.BatchNorm1d(128), nn.Dropout(0.2),
                nn.Linear(128, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Dropout(0.2),
                nn.Linear(64, 1))

        def forward(self, kinds, values):
            found = [embed(kinds[:, k]) for k, embed in enumerate(self.embeds)]
            return self.mlp(torch.cat([*found, values], dim=1)).squeeze(1)

    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    kinds = torch.stack([torch.randint(0, n, (size,)) for n in counts], dim=1)
    values, y = torch.randn(size, 10), (torch.rand(size) > 0.5).float()

    def step():
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(kinds, values), y)
        loss.backward()
        optimizer.step()
        return loss
    return step


def recommendation(torch, users=2000, items=1000, width=32, size=512):
    """Matrix factorisation with biases and Adagrad."""
    nn = torch.nn
    tables = nn.ModuleList([nn.Embedding(users, width), nn.Embedding(items, width),
                            nn.Embedding(users, 1), nn.Embedding(items, 1)])
    optimizer = torch.optim.Adagrad(tables.parameters(), lr=0.05)
    u, i = torch.randint(0, users, (size,)), torch.randint(0, items, (size,))
    stars = torch.randint(1, 6, (size,)).float()

    def step():
        p, q, a, b = tables[0](u), tables[1](i), tables[2](u), tables[3](i)
        predicted = (p * q).sum(dim=1) + a.squeeze() + b.squeeze() + 3.5
        loss = ((predicted - stars) ** 2).mean() + 1e-4 * (p.pow(2).sum() + q.pow(2).sum())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


def contrasts(torch, size=64, width=64):
    """Two views of each sample: normalised embeddings, a temperature, a symmetric loss."""
    nn, F = torch.nn, torch.nn.functional
    encoder = nn.Sequential(nn.Linear(40, 128), nn.BatchNorm1d(128), nn.ReLU(),
                            nn.Linear(128, width))
    temperature = nn.Parameter(torch.tensor(2.0))
    optimizer = torch.optim.AdamW([*encoder.parameters(), temperature], lr=1e-3)
    x, same = torch.randn(size, 40), torch.arange(size)

    def step():
        a, b = (encoder(x + 0.1 * torch.randn_like(x)) for _ in range(2))
        logits = F.normalize(a, dim=1) @ F.normalize(b, dim=1).t() * temperature.exp()
        loss = (F.cross_entropy(logits, same) + F.cross_entropy(logits.t(), same)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


def experts(torch, size=128, width=48, count=4):
    """A mixture of experts: all of them by einsum, weighted by a gate, with a balance loss."""
    nn, F = torch.nn, torch.nn.functional
    gate = nn.Linear(width, count)
    w1 = nn.Parameter(torch.randn(count, width, 2 * width) * 0.1)
    w2 = nn.Parameter(torch.randn(count, 2 * width, width) * 0.1)
    optimizer = torch.optim.Adam([*gate.parameters(), w1, w2], lr=1e-3)
    x, y = torch.randn(size, width), torch.randn(size, width)

    def step():
        shares = F.softmax(gate(x), dim=-1)
        top, index = shares.topk(2, dim=-1)
        weights = torch.zeros_like(shares).scatter(1, index, top / top.sum(-1, keepdim=True))
        h = F.gelu(torch.einsum('nd,edh->neh', x, w1))
        out = torch.einsum('neh,ehd,ne->nd', h, w2, weights)
        loss = F.mse_loss(out, y) + 0.01 * count * (shares.mean(0) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


# ---------------------------------------------------------------- optimisers and many parameters

def deep_and_narrow(torch, depth=40, width=32, size=32):
    """Many small parameters: residual layers, parameter groups, clipping, a schedule."""
    nn = torch.nn
    layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
    weights, biases = [m.weight for m in layers], [m.bias for m in layers]
    optimizer = torch.optim.SGD([{'params': weights, 'weight_decay': 1e-4},
                                 {'params': biases, 'lr': 2e-2}],
                                lr=1e-2, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    x, y = torch.randn(size, width), torch.randn(size, width)

    def step():
        h = x
        for layer in layers:
            h = h + 0.1 * torch.tanh(layer(h))
        loss = nn.functional.smooth_l1_loss(h, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss
    return step


def classifier_with(torch, make):
    """An MLP for images of digits, trained by the optimiser that `make` makes."""
    nn = torch.nn
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64),
                          nn.ReLU(), nn.Linear(64, 10))
    return supervised(torch, model, make(torch.optim)(model.parameters()),
                      torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,)))


def adadelta_digits(torch):
    """The MLP under Adadelta."""
    return classifier_with(torch, lambda optim: optim.Adadelta)


def rmsprop_digits(torch):
    """The MLP under RMSprop."""
    return classifier_with(torch, lambda optim: optim.RMSprop)


def adagrad_digits(torch):
    """The MLP under Adagrad."""
    return classifier_with(torch, lambda optim: optim.Adagrad)


def dropouts(torch, size=64):
    """Dropout before every layer of a wide MLP."""
    nn = torch.nn
    model = nn.Sequential(nn.Dropout(0.2), nn.Linear(256, 512), nn.ReLU(), nn.Dropout(0.5),
                          nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.5),
                          nn.Linear(512, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return supervised(torch, model, optimizer, torch.rand(size, 256),
                      torch.randint(0, 10, (size,)))


def regression_by_lbfgs(torch, size=200):
    """Logistic regression to the end by L-BFGS with a closure."""
    x, w = torch.randn(size, 12), torch.zeros(12, requires_grad=True)
    y = (x @ torch.randn(12) > 0).float()

    def step():
        with torch.no_grad():
            w.zero_()
        optimizer = torch.optim.LBFGS([w], lr=0.5, max_iter=8)

        def closure():
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(x @ w, y)
            loss = loss + 0.01 * w.dot(w)
            loss.backward()
            return loss
        return optimizer.step(closure)
    return step


# ---------------------------------------------------------------- derivatives of derivatives

def hessian_products(torch, n=50):
    """Conjugate gradients on Hessian-vector products of a small function."""
    a, x = torch.randn(n, n) / n, torch.randn(n, requires_grad=True)

    def energy(x):
        return (torch.logsumexp(a @ x, dim=0) + (x ** 4).sum() / 12 + 0.5 * (x * x).sum())

    def step():
        gradient, = torch.autograd.grad(energy(x), x, create_graph=True)
        solution, residual = torch.zeros(n), gradient.detach().clone()
        direction, size = residual, residual @ residual
        for _ in range(8):
            product, = torch.autograd.grad(gradient, x, direction, retain_graph=True)
            alpha = size / (direction @ product)
            solution = solution + alpha * direction
            residual = residual - alpha * product
            new = residual @ residual
            direction, size = residual + new / size * direction, new
        return solution.sum()
    return step


def learning_to_learn(torch, tasks=4, shots=10):
    """MAML for sine waves: a step inside, a step outside through it."""
    F = torch.nn.functional
    sizes = ((40, 1), (40,), (40, 40), (40,), (1, 40), (1,))
    weights = [(torch.randn(*s) * 0.1).requires_grad_() for s in sizes]
    optimizer = torch.optim.Adam(weights, lr=1e-3)
    height, phase = torch.rand(tasks, 1) * 4 + 0.1, torch.rand(tasks, 1) * 3
    points = torch.rand(tasks, 2 * shots) * 10 - 5
    values = height * torch.sin(points + phase)

    def net(x, w):
        x = F.relu(F.linear(x, w[0], w[1]))
        return F.linear(F.relu(F.linear(x, w[2], w[3])), w[4], w[5])

    def step():
        outer = 0
        for k in range(tasks):
            x, y = points[k, :, None], values[k, :, None]
            inner = F.mse_loss(net(x[:shots], weights), y[:shots])
            grads = torch.autograd.grad(inner, weights, create_graph=True)
            fast = [w - 0.01 * g for w, g in zip(weights, grads)]
            outer = outer + F.mse_loss(net(x[shots:], fast), y[shots:])
        optimizer.zero_grad()
        outer.backward()
        optimizer.step()
        return outer
    return step


def heat_equation(torch, size=200):
    """A physics-informed network: second derivatives of a tanh network by its inputs."""
    nn, grad = torch.nn, torch.autograd.grad
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(),
                          nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inside, edge = torch.rand(size, 2), torch.rand(50, 2)
    edge[:, 1] = 0
    wanted = torch.sin(math.pi * edge[:, :1])

    def step():
        x, t = inside[:, :1].clone().requires_grad_(), inside[:, 1:].clone().requires_grad_()
        u = model(torch.cat([x, t], dim=1))
        ones = torch.ones_like(u)
        u_x, u_t = grad(u, (x, t), ones, create_graph=True)
        u_xx, = grad(u_x, x, ones, create_graph=True)
        residual = ((u_t - 0.1 * u_xx) ** 2).mean()
        loss = residual + ((model(edge) - wanted) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


def neural_ode(torch, size=20, steps=10):
    """A small field integrated by Runge and Kutta's method, trained through the solver."""
    nn = torch.nn
    field = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))
    optimizer = torch.optim.RMSprop(field.parameters(), lr=1e-3)
    start, path = torch.randn(size, 2), torch.randn(steps, size, 2)

    def step():
        optimizer.zero_grad()
        y, h, states = start, 0.1, []
        for _ in range(steps):
            k1 = field(y ** 3)
            k2 = field((y + h / 2 * k1) ** 3)
            k3 = field((y + h / 2 * k2) ** 3)
            k4 = field((y + h * k3) ** 3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            states.append(y)
        loss = torch.mean(torch.abs(torch.stack(states) - path))
        loss.backward()
        optimizer.step()
        return loss
    return step


def penalised_critic(torch, size=64):
    """A Wasserstein critic with a penalty on the norm of its gradient."""
    nn = torch.nn
    critic = nn.Sequential(nn.Linear(16, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64),
                           nn.LeakyReLU(0.2), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
    real, fake = torch.randn(size, 16), torch.randn(size, 16) + 1

    def step():
        share = torch.rand(size, 1)
        mixed = (share * real + (1 - share) * fake).requires_grad_(True)
        out = critic(mixed)
        slope, = torch.autograd.grad(out, mixed, torch.ones_like(out), create_graph=True)
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


# ---------------------------------------------------------------- probability and linear algebra

def gaussian_process(torch, n=120):
    """Marginal likelihood of a Gaussian process: cholesky, triangular solves, log determinant."""
    x = torch.linspace(0, 1, n, dtype=torch.float64)[:, None]
    y = torch.sin(6 * x) + 0.1 * torch.randn(n, 1, dtype=torch.float64)
    logs = [torch.zeros((), dtype=torch.float64, requires_grad=True) for _ in range(3)]
    optimizer = torch.optim.Adam(logs, lr=0.05)

    def step():
        length, height, noise = (v.exp() for v in logs)
        k = height * torch.exp(-0.5 * (x - x.T) ** 2 / length ** 2)
        k = k + (noise + 1e-4) * torch.eye(n, dtype=torch.float64)
        factor = torch.linalg.cholesky(k)
        alpha = torch.cholesky_solve(y, factor)
        loss = 0.5 * (y * alpha).sum() + torch.log(torch.diagonal(factor)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


def sparse_process(torch, n=256, m=32):
    """A Gaussian process on inducing points: `solve_triangular` and a multivariate normal."""
    dist = torch.distributions
    x, y = torch.rand(n, 2), torch.randn(n)
    z = torch.rand(m, 2).requires_grad_()
    log_length = torch.zeros(2, requires_grad=True)
    mean = torch.zeros(m, requires_grad=True)
    root = torch.eye(m).requires_grad_()
    optimizer = torch.optim.Adam([z, log_length, mean, root], lr=1e-2)

    def kernel(a, b):
        return torch.exp(-0.5 * torch.cdist(a / log_length.exp(), b / log_length.exp()) ** 2)

    def step():
        factor = torch.linalg.cholesky(kernel(z, z) + 1e-3 * torch.eye(m))
        a = torch.linalg.solve_triangular(factor, kernel(z, x), upper=False)
        scale = root.tril()
        q = dist.MultivariateNormal(mean, scale_tril=scale + 1e-3 * torch.eye(m))
        p = dist.MultivariateNormal(torch.zeros(m), torch.eye(m))
        variance = 1 - (a * a).sum(0) + ((scale.T @ a) ** 2).sum(0)
        misfit = ((y - mean @ a) ** 2 + variance).mean()
        loss = misfit + dist.kl_divergence(q, p) / n
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


def kalman_filter(torch, length=30, size=32):
    """The likelihood of observations under a linear system, batched small matrices."""
    a, c = (torch.eye(4) * 0.9).requires_grad_(), (torch.randn(2, 4) * 0.3).requires_grad_()
    log_q, log_r = torch.zeros(4, requires_grad=True), torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.Adam([a, c, log_q, log_r], lr=1e-2)
    seen = torch.randn(length, size, 2, 1)

    def step():
        x, p = torch.zeros(size, 4, 1), torch.eye(4).expand(size, 4, 4)
        q, r, loss = torch.diag(log_q.exp()), torch.diag(log_r.exp()), 0
        for y in seen:
            x, p = a @ x, a @ p @ a.T + q
            s = c @ p @ c.T + r
            gain = torch.linalg.solve(s, c @ p).transpose(1, 2)
            error = y - c @ x
            fit = (error.transpose(1, 2) @ torch.linalg.solve(s, error)).sum()
            loss = loss + 0.5 * (torch.logdet(s).sum() + fit) / size
            x, p = x + gain @ error, p - gain @ c @ p
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


def variational_autoencoder(torch, size=64, hidden=128, latent=16):
    """A VAE with `distributions`: reparametrised samples, a divergence, a Bernoulli likelihood."""
    nn, dist = torch.nn, torch.distributions
    encoder = nn.Sequential(nn.Linear(400, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent))
    decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, 400))
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    x = (torch.rand(size, 400) > 0.5).float()

    def step():
        mean, log = encoder(x).chunk(2, dim=-1)
        posterior = dist.Normal(mean, torch.exp(0.5 * log))
        pixels = dist.Bernoulli(logits=decoder(posterior.rsample()))
        prior = dist.Normal(torch.zeros_like(mean), torch.ones_like(mean))
        divergence = dist.kl_divergence(posterior, prior).sum(-1)
        loss = (divergence - pixels.log_prob(x).sum(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


def coupling_flow(torch, size=256, layers=4):
    """A normalising flow of affine couplings on points in the plane."""
    nn = torch.nn
    nets = nn.ModuleList([nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 2))
                          for _ in range(layers)])
    optimizer = torch.optim.Adam(nets.parameters(), lr=1e-3)
    points = torch.randn(size, 2) * torch.tensor([1.0, 0.3])
    base = torch.distributions.Normal(0.0, 1.0)

    def step():
        z, log = points, torch.zeros(size)
        for k, net in enumerate(nets):
            kept, moved = z[:, k % 2:k % 2 + 1], z[:, 1 - k % 2:2 - k % 2]
            scale, shift = net(kept).chunk(2, dim=1)
            scale = torch.tanh(scale)
            moved = moved * scale.exp() + shift
            z = torch.cat([kept, moved] if k % 2 == 0 else [moved, kept], dim=1)
            log = log + scale.squeeze(1)
        loss = -(base.log_prob(z).sum(1) + log).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


def policy_gradient(torch, size=128):
    """An actor and a critic: a categorical policy, an entropy bonus, advantages."""
    nn, Categorical = torch.nn, torch.distributions.Categorical
    body = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    actor, critic = nn.Linear(64, 4), nn.Linear(64, 1)
    parts = nn.ModuleList([body, actor, critic])
    optimizer = torch.optim.Adam(parts.parameters(), lr=3e-4)
    states, returns = torch.randn(size, 8), torch.randn(size)
    with torch.no_grad():
        policy = Categorical(logits=actor(body(states)))
        actions = policy.sample()
        before = policy.log_prob(actions)

    def step():
        h = body(states)
        policy, values = Categorical(logits=actor(h)), critic(h).squeeze(-1)
        advantage = returns - values.detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = (policy.log_prob(actions) - before).exp()
        clipped = torch.clamp(ratio, 0.8, 1.2)
        gain = torch.min(ratio * advantage, clipped * advantage).mean()
        misfit = nn.functional.mse_loss(values, returns)
        loss = 0.5 * misfit - gain - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parts.parameters(), 0.5)
        optimizer.step()
        return loss
    return step


def q_learning(torch, size=64):
    """Deep Q-learning from remembered transitions, with a slowly following target."""
    nn = torch.nn

    def net():
        return nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                             nn.Linear(64, 3))

    online, target = net(), net()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.AdamW(online.parameters(), lr=1e-4, amsgrad=True)
    states, after = torch.randn(size, 6), torch.randn(size, 6)
    actions, rewards = torch.randint(0, 3, (size, 1)), torch.randn(size)
    done = torch.rand(size) < 0.1

    def step():
        values = online(states).gather(1, actions)
        with torch.no_grad():
            best = target(after).max(1).values
            best[done] = 0
        loss = nn.functional.smooth_l1_loss(values, (rewards + 0.99 * best).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(online.parameters(), 100)
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(target.parameters(), online.parameters()):
                p.mul_(0.995).add_(0.005 * q)
        return loss
    return step


# ---------------------------------------------------------------- small functions

def scalar_functions(torch, steps=30):
    """Descent on Rosenbrock's valley with numbers of no dimensions."""
    def step():
        x, y = torch.tensor(-1.2, requires_grad=True), torch.tensor(1.0, requires_grad=True)
        for _ in range(steps):
            loss = (1 - x) ** 2 + 100 * (y - x ** 2) ** 2
            dx, dy = torch.autograd.grad(loss, (x, y))
            with torch.no_grad():
                x -= 1e-3 * dx
                y -= 1e-3 * dy
        return loss
    return step


def scalar_network(torch, width=6):
    """A network of single numbers, neuron by neuron."""
    def neurons(inside, outside):
        return [([torch.randn((), requires_grad=True) for _ in range(inside)],
                 torch.zeros((), requires_grad=True)) for _ in range(outside)]

    layers = [neurons(3, width), neurons(width, width), neurons(width, 1)]
    parameters = [p for layer in layers for w, b in layer for p in (*w, b)]
    samples = [([2.0, 3.0, -1.0], 1.0), ([3.0, -1.0, 0.5], -1.0), ([0.5, 1.0, 1.0], -1.0)]

    def forward(x):
        for layer in layers:
            x = [torch.tanh(sum((a * b for a, b in zip(w, x)), bias)) for w, bias in layer]
        return x[0]

    def step():
        loss = sum((forward(x) - y) ** 2 for x, y in samples)
        for p in parameters:
            p.grad = None
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= 0.01 * p.grad
        return loss
    return step


def springs(torch, particles=24, steps=20):
    """A simulation of particles on springs, differentiated by its stiffness and starts."""
    start = torch.randn(particles, 2, requires_grad=True)
    stiffness = torch.tensor(1.5, requires_grad=True)

    def step():
        x, v = start, torch.zeros(particles, 2)
        for _ in range(steps):
            apart = x[:, None] - x[None]
            distance = (apart.pow(2).sum(-1) + 1e-3).sqrt()
            pull = -stiffness * (distance - 1.0)
            force = (pull / distance).unsqueeze(-1) * apart
            v = 0.99 * v + 0.01 * force.sum(1)
            x = x + 0.01 * v
        loss = (x ** 2).sum()
        start.grad = stiffness.grad = None
        loss.backward()
        return loss
    return step


PROGRAMS = {
    'transformer by hand, causal mask, dropout, clipping': handwritten_transformer,
    'transformer by hand, rotary, RMS norm, gated': rotary_transformer,
    'nn.TransformerEncoder with dropout': encoder_layers,
    'vision transformer': vision_transformer,
    'generation token by token, cached': lambda torch: generation(torch, True),
    'generation token by token, from scratch': lambda torch: generation(torch, False),
    'LSTM language model, 4,000 words': lstm_language_model,
    'bidirectional GRU': gru_classifier,
    'LSTM cells in a loop': lstm_cells,
    'recurrence from its formula': recurrence_by_formula,
    'translation with additive attention': translation_with_attention,
    'word vectors, negative samples': word_vectors,
    'residual network, batch norm': residual_network,
    'style network, instance norm, reflection': style_network,
    'depthwise separable convolutions': separable_convolutions,
    'dilated convolutions over sound': dilated_sound,
    'U-Net, group norm, upsampling': segmentation,
    'generator and discriminator': adversaries,
    'diffusion step': denoising,
    'graph attention, dense': dense_graph_attention,
    'graph attention, by index': graph_by_index,
    'table of categories and numbers': tabular,
    'matrix factorisation, Adagrad': recommendation,
    'contrastive learning': contrasts,
    'mixture of experts, einsum': experts,
    '40 layers, parameter groups, clipping': deep_and_narrow,
    'MLP under Adadelta': adadelta_digits,
    'MLP under RMSprop': rmsprop_digits,
    'MLP under Adagrad': adagrad_digits,
    'MLP with dropout everywhere': dropouts,
    'logistic regression by L-BFGS': regression_by_lbfgs,
    'Hessian-vector products': hessian_products,
    'MAML': learning_to_learn,
    'physics-informed, second derivatives': heat_equation,
    'neural ODE': neural_ode,
    'critic with gradient penalty': penalised_critic,
    'Gaussian process': gaussian_process,
    'sparse Gaussian process': sparse_process,
    'Kalman filter': kalman_filter,
    'variational autoencoder': variational_autoencoder,
    'normalising flow': coupling_flow,
    'policy gradient': policy_gradient,
    'Q-learning': q_learning,
    'descent with single numbers': scalar_functions,
    'network of single numbers': scalar_network,
    'simulation of springs': springs,
}
