package uswitch

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSegmenterMatchesKernelSegmentation(t *testing.T) {
	for _, k := range kinds {
		for _, n := range []struct{ size, payload int }{{1000, 5000}, {1000, 4001}, {8, 333}, {4140, 4140 * 15}, {1400, 1400}, {1400, 10}} {
			const flags = tcpCWR | tcpPSH | tcpFIN
			p := gsoPacket(t, k, n.size, n.payload, flags)
			before := bytes.Clone(p.bytes)
			want := segmentsOf(t, k, n.size, p, flags)
			var c segmenter
			if !c.begin(p) || c.n != len(want) {
				t.Fatalf("%s %v: %d frames, want %d", k.name, n, c.n, len(want))
			}
			for i, w := range want {
				if got := completed(c.frame(i)); !bytes.Equal(got, w) {
					t.Fatalf("%s %v, frame %d:\n%x\nwant\n%x", k.name, n, i, got[:min(100, len(got))], w[:min(100, len(w))])
				}
			}
			c.restore()
			if !bytes.Equal(p.bytes, before) {
				t.Errorf("%s %v: the GSO packet was not restored", k.name, n)
			}
			if frames, longest, total := p.frames(); frames != len(want) || longest != len(want[0]) || total != len(bytes.Join(want, nil)) {
				t.Errorf("%s %v: counted as %d frames, %d and %d bytes", k.name, n, frames, longest, total)
			}
		}
	}
}

func TestSegmenterRejectsUnknownPackets(t *testing.T) {
	valid := func() *packet { return gsoPacket(t, kinds[0], 100, 1000, 0) }
	for name, change := range map[string]func(*packet){
		"kind of another protocol": func(p *packet) { p.vnet.gsoType = gsoTCPv4 },
		"fragments":                func(p *packet) { p.vnet.gsoType = 3 },
		"complete checksum":        func(p *packet) { p.vnet.flags = 0 },
		"no IP":                    func(p *packet) { p.bytes[12] = 0x99 },
		"headers only":             func(p *packet) { p.bytes = p.bytes[:42] },
	} {
		p := valid()
		change(p)
		var c segmenter
		if c.begin(p) {
			t.Errorf("%s: was segmented", name)
		}
	}
}

// Segmenting and coalescing must give the same frames. The test segments as the kernel does.
func TestCoalescedFramesEqualSegments(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		k := kinds[rng.IntN(len(kinds))]
		size := 1 + rng.IntN(3000)
		p := gsoPacket(t, k, size, 1+rng.IntN(min(60000, size*80)), byte(rng.IntN(2))*tcpPSH)
		var c segmenter
		if !c.begin(p) {
			t.Fatal("not segmented")
		}
		var want [][]byte
		var ms []message
		for i := range c.n {
			f := c.frame(i)
			if rng.IntN(10) == 0 {
				continue
			}
			want = append(want, bytes.Clone(f))
			if len(ms) > 0 && ms[len(ms)-1].coalesce(f) {
				continue
			}
			ms = append(ms, message{})
			ms[len(ms)-1].setFrame(f, true)
		}
		c.restore()
		var got [][]byte
		for i := range ms {
			got = append(got, segmentMessage(t, &ms[i])...)
		}
		if len(got) != len(want) {
			t.Fatalf("%s, %d bytes each: %d frames, want %d", k.name, size, len(got), len(want))
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("%s, frame %d:\n%x\nwant\n%x", k.name, i, got[i][:min(90, len(got[i]))], want[i][:min(90, len(want[i]))])
			}
		}
	}
}

// segmentMessage returns the frames of a message to be sent.
func segmentMessage(t *testing.T, m *message) (all [][]byte) {
	t.Helper()
	m.finish()
	p := packet{vnet: parseVnet(m.vnet[:])}
	p.bytes = append(p.bytes, m.headers[:m.headerLen]...)
	for _, piece := range m.iovs[:m.iovCount] {
		p.bytes = append(p.bytes, piece...)
	}
	if n, _, total := p.frames(); n != m.frames || total != m.bytes() {
		t.Fatalf("message of %d frames and %d bytes has the counts %d and %d", n, total, m.frames, m.bytes())
	}
	if !p.isGSO() {
		return [][]byte{p.bytes}
	}
	var c segmenter
	if !c.begin(&p) {
		t.Fatal("the GSO packet cannot be segmented")
	}
	for i := range c.n {
		all = append(all, bytes.Clone(c.frame(i)))
	}
	return all
}

func TestUnchangedGSOPacketIsCoalescedToOneMessage(t *testing.T) {
	for _, k := range kinds {
		const flags = tcpCWR | tcpPSH
		p := gsoPacket(t, k, 4140, 4140*14+100, flags)
		before := bytes.Clone(p.bytes)
		var c segmenter
		c.begin(p)
		var m message
		for i := range c.n {
			f := c.frame(i)
			if i == 0 {
				m.setFrame(f, true)
			} else if !m.coalesce(f) {
				t.Fatalf("%s: frame %d was not coalesced", k.name, i)
			}
		}
		c.restore()
		m.finish()
		if m.iovCount != 1 {
			t.Errorf("%s: gathered from %d places, though it is contiguous", k.name, m.iovCount)
		}
		if got := append(bytes.Clone(m.headers[:m.headerLen]), m.iovs[0]...); !bytes.Equal(got, before) {
			t.Errorf("%s: headers\n%x, want\n%x", k.name, got[:80], before[:80])
		}
		v := parseVnet(m.vnet[:])
		if k.tcp && v.gsoType&gsoECN == 0 {
			t.Errorf("%s: CWR without gsoECN", k.name)
		}
		if v.gsoType &^= gsoECN; v != p.vnet {
			t.Errorf("%s: %+v, want %+v", k.name, v, p.vnet)
		}
	}
}

func TestFramesOfOtherFlowsAreNotCoalesced(t *testing.T) {
	body := make([]byte, 500)
	for _, k := range kinds {
		first := packetSpec{kind: k, id: 9, seq: 1000, payload: body}
		next := first
		next.id, next.seq = 10, 1500
		same := func(change func(*packetSpec)) bool {
			var m message
			m.setFrame(partial(t, first.frame(t)), true)
			s := next
			change(&s)
			return m.coalesce(partial(t, s.frame(t)))
		}
		if !same(func(*packetSpec) {}) || !same(func(s *packetSpec) { s.payload = body[:20] }) {
			t.Errorf("%s: the next frame was not coalesced", k.name)
		}
		for name, change := range map[string]func(*packetSpec){
			"other port":   func(s *packetSpec) { s.port = 1 },
			"other sender": func(s *packetSpec) { s.from, s.to = macC, macB },
			"longer":       func(s *packetSpec) { s.payload = make([]byte, 501) },
			"empty":        func(s *packetSpec) { s.payload = nil },
		} {
			if same(change) {
				t.Errorf("%s: %s was coalesced", k.name, name)
			}
		}
		if !k.v6 && same(func(s *packetSpec) { s.id = 9 }) {
			t.Errorf("%s: a frame with another identification was coalesced", k.name)
		}
		if k.tcp && (same(func(s *packetSpec) { s.seq++ }) || same(func(s *packetSpec) { s.flags = tcpCWR })) {
			t.Errorf("%s: a segment with another sequence number was coalesced", k.name)
		}
	}
}

func TestPaddedAndTaggedFramesAreNotCoalesced(t *testing.T) {
	next := packetSpec{kind: kinds[0], id: 10, payload: make([]byte, 20)}
	first := next
	first.id = 9
	plain := partial(t, first.frame(t))
	tagged := slices.Concat(plain[:12], []byte{0x81, 0, 0, 1}, plain[12:])
	for name, b := range map[string][]byte{"padded": append(slices.Clone(plain), 0, 0, 0, 0), "tagged": tagged} {
		var m message
		m.setFrame(b, true)
		if m.canAppend || m.coalesce(partial(t, next.frame(t))) {
			t.Errorf("a frame was appended to a %s one", name)
		}
	}
}

// The transport header follows the extension headers of IPv6.
func TestParseSkipsExtensionHeaders(t *testing.T) {
	b := packetSpec{kind: kinds[1], payload: []byte("data")}.frame(t)
	const nextHeader, end = etherLen + 6, etherLen + 40
	b = slices.Concat(b[:end], []byte{protoUDP, 0, 1, 4, 0, 0, 0, 0}, b[end:])
	b[nextHeader] = 0 // hop by hop
	if l, ok := parse(b); !ok || l.l4 != end+8 || string(b[l.payload:]) != "data" {
		t.Errorf("%+v, %t", l, ok)
	}
	for n := range end + 16 {
		if l, ok := parse(b[:n]); ok {
			t.Errorf("%d bytes of the headers: %+v", n, l)
		}
	}
}

func TestShortOrLastFrameEndsMessage(t *testing.T) {
	body := make([]byte, 500)
	for _, k := range kinds {
		frame := func(i int, flags byte, payload []byte) []byte {
			return partial(t, packetSpec{kind: k, id: uint16(i), seq: uint32(i) * 500, flags: flags, payload: payload}.frame(t))
		}
		var m message
		m.setFrame(frame(0, 0, body), true)
		if !m.coalesce(frame(1, 0, body[:100])) || m.coalesce(frame(2, 0, body[:100])) {
			t.Errorf("%s: a frame was coalesced after a shorter one", k.name)
		}
		if !k.tcp {
			continue
		}
		m.setFrame(frame(0, 0, body), true)
		if !m.coalesce(frame(1, tcpPSH, body)) || m.coalesce(frame(2, 0, body)) {
			t.Errorf("%s: a segment was coalesced after one with PSH", k.name)
		}
	}
}

func TestMessageStaysWithinLimits(t *testing.T) {
	for _, n := range []int{10, 1000, 4000} {
		var m message
		body := make([]byte, n)
		spec := packetSpec{kind: kinds[0], payload: body}
		m.setFrame(partial(t, spec.frame(t)), true)
		for i := 1; i < 200; i++ {
			spec.id = uint16(i)
			if !m.coalesce(partial(t, spec.frame(t))) {
				break
			}
		}
		if m.frames > maxSegments || m.iovCount > maxIovecs || m.payload+28 > maxIP || m.frames < 10 {
			t.Errorf("%d bytes each: %d frames in %d iovecs, %d bytes", n, m.frames, m.iovCount, m.payload)
		}
	}
}

// A kernel before 6.2 accepts TCP GSO packets but not UDP.
func TestUDPIsNotCoalescedWithoutKernelUDPGSO(t *testing.T) {
	for _, k := range kinds {
		for _, single := range []bool{false, true} {
			r := newRig(t, 2, func(c *Config) { c.Ports[0].In = spy(func(Frame) {}) })
			r.noUDPGSO = single
			p := gsoPacket(t, k, 1000, 5000, 0)
			r.receive(r.ports[0], p)
			r.flush()
			want := 1
			if single && !k.tcp {
				want = 5
			}
			r.expect(k.name, r.sent(), 0, want)
		}
	}
}
