package softiwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// impaired splits and delays streams at random.
var impaired = sim.NetConfig{Stream: sim.StreamConfig{CutPPM: 300_000, StallPPM: 20_000, StallFor: 50 * time.Microsecond, BufferBytes: 20_000}}

// operations are all operations of iWARP, each with its expected effect.
var operations = []struct {
	name string
	do   func(c *connectedPair)
}{
	{"send", func(c *connectedPair) {
		c.message(verbs.SendWR{Opcode: verbs.OpSend}, 50_000, verbs.WC{Opcode: verbs.WCOpRecv})
	}},
	{"empty send", func(c *connectedPair) {
		c.message(verbs.SendWR{Opcode: verbs.OpSend}, 0, verbs.WC{Opcode: verbs.WCOpRecv})
	}},
	{"inline send", func(c *connectedPair) {
		c.message(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendInline}, 61, verbs.WC{Opcode: verbs.WCOpRecv})
	}},
	{"immediate data alone", func(c *connectedPair) {
		c.message(verbs.SendWR{Opcode: verbs.OpSendImm, Imm: 0x01020304}, 0, verbs.WC{Opcode: verbs.WCOpRecv, Flags: verbs.WCWithImm, Imm: 0x01020304})
	}},
	{"write", func(c *connectedPair) {
		want := c.a.Fill(0, 40_001, 3)
		c.a.Do(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: c.a.SGL(0, len(want)), Remote: c.b.Remote(7)})
		c.flushWrites()
		same(c, want, c.b.Buf[7:7+len(want)])
	}},
	{"write with immediate", func(c *connectedPair) {
		want := c.a.Fill(0, 9000, 4)
		c.b.Recv(0, 0)
		c.a.Do(verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, SGL: c.a.SGL(0, len(want)), Remote: c.b.Remote(100), Imm: 77})
		wc := c.b.AwaitSuccess()
		if wc.Opcode != verbs.WCOpRecvRDMAWithImm || wc.Imm != 77 || wc.ByteLen != 9000 {
			c.Fatalf("received %+v", wc)
		}
		same(c, want, c.b.Buf[100:100+len(want)])
	}},
	{"read", func(c *connectedPair) {
		want := c.b.Fill(5, 30_003, 5)
		// Two SGEs, in descending order of addresses.
		sgl := []verbs.SGE{verbs.SGEOf(c.a.MR, 40_000, 20_000), verbs.SGEOf(c.a.MR, 0, 10_003)}
		c.a.Do(verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: sgl, Remote: c.b.Remote(5)})
		same(c, want, append(append([]byte(nil), c.a.Buf[40_000:60_000]...), c.a.Buf[:10_003]...))
	}},
	{"empty read", func(c *connectedPair) { c.a.Do(verbs.SendWR{Opcode: verbs.OpRDMARead, Remote: c.b.Remote(0)}) }},
	{"read by the responder", func(c *connectedPair) {
		want := c.a.Fill(5, 9003, 6)
		c.b.Do(verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: c.b.SGL(1, 9003), Remote: c.a.Remote(5)})
		same(c, want, c.b.Buf[1:9004])
	}},
	{"more reads than initiator depth", func(c *connectedPair) {
		for i := range 12 {
			c.b.Fill(i*1000, 1000, byte(i))
			c.a.Post(verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: c.a.SGL(i*1000, 1000), Remote: c.b.Remote(i * 1000)})
		}
		for i := range uint64(12) {
			if wc := c.a.AwaitSuccess(); wc.WRID != i {
				c.Fatalf("%+v", wc)
			}
		}
		same(c, c.b.Buf[:12_000], c.a.Buf[:12_000])
	}},
	{"atomics", (*connectedPair).atomics},
	{"windows", (*connectedPair).windows},
	{"invalidate", (*connectedPair).invalidate},
}

func same(t testing.TB, want, got []byte) {
	t.Helper()
	if !bytes.Equal(want, got) {
		t.Errorf("%d bytes differ", len(want))
	}
}

// flushWrites waits until a's writes have arrived, with a read after them.
func (c *connectedPair) flushWrites() {
	c.a.Do(verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: c.a.SGL(65_535, 1), Remote: c.b.Remote(65_535)})
}

// message sends n bytes from a to b, and expects the completion want at b.
func (c *connectedPair) message(wr verbs.SendWR, n int, want verbs.WC) {
	data := c.a.Fill(0, n, 9)
	if wr.Flags&verbs.SendInline != 0 {
		wr.Inline = data
	} else if n > 0 {
		wr.SGL = []verbs.SGE{verbs.SGEOf(c.a.MR, 0, n/3), verbs.SGEOf(c.a.MR, n/3, n-n/3)}
	}
	c.b.Recv(3, n)
	c.a.Do(wr)
	wc := c.b.AwaitSuccess()
	if wc.Opcode != want.Opcode || wc.Flags != want.Flags || wc.Imm != want.Imm || int(wc.ByteLen) != n || wc.QPN != c.b.QP.QPN() {
		c.Fatalf("received %+v, want %+v", wc, want)
	}
	same(c, data, c.b.Buf[3:3+n])
}

func (c *connectedPair) atomics() {
	word := c.b.Buf[64:72]
	binary.NativeEndian.PutUint64(word, 40)
	atomic := func(wr verbs.SendWR, before, after uint64) {
		wr.SGL, wr.Remote = c.a.SGL(8, 8), c.b.Remote(64)
		c.a.Do(wr)
		got, now := binary.NativeEndian.Uint64(c.a.Buf[8:]), binary.NativeEndian.Uint64(word)
		if got != before || now != after {
			c.Errorf("%v returned %d and wrote %d, want %d and %d", wr.Opcode, got, now, before, after)
		}
	}
	atomic(verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd, Atomic: verbs.Atomic{CompareAdd: 2}}, 40, 42)
	atomic(verbs.SendWR{Opcode: verbs.OpAtomicCmpAndSwp, Atomic: verbs.Atomic{CompareAdd: 41, Swap: 1}}, 42, 42)
	atomic(verbs.SendWR{Opcode: verbs.OpAtomicCmpAndSwp, Atomic: verbs.Atomic{CompareAdd: 42, Swap: 1}}, 42, 1)
}

// windows opens a window of each type at b and writes through it.
func (c *connectedPair) windows() {
	info := verbs.BindInfo{MR: c.b.MR, Addr: c.b.MR.Addr() + 500, Length: 16, Access: verbs.AccessRemoteWrite}
	through := func(key verbs.RKey, text string) {
		copy(c.a.Buf, text)
		c.a.Do(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: c.a.SGL(0, len(text)), Remote: verbs.Remote{Addr: c.b.MR.Addr() + 500, RKey: key}})
		c.flushWrites()
		if string(c.b.Buf[500:500+len(text)]) != text {
			c.Errorf("memory of the window: %q", c.b.Buf[500:516])
		}
	}
	mw := must.Get(c.b.PD.AllocMW(verbs.MWType1))(c)
	key := must.Get(c.b.QP.BindMW(mw, 1, verbs.SendSignaled, info))(c)
	if wc := c.b.AwaitSuccess(); wc.Opcode != verbs.WCOpBindMW {
		c.Fatalf("bind %+v", wc)
	}
	through(key, "type one")
	mw = must.Get(c.b.PD.AllocMW(verbs.MWType2))(c)
	key = verbs.NextRKey(mw.RKey())
	c.b.Do(verbs.SendWR{Opcode: verbs.OpBindMW, Bind: verbs.Bind{MW: mw, RKey: key, Info: info}})
	through(key, "type two")
}

// invalidate invalidates windows of b: by b itself, and by a message of a.
func (c *connectedPair) invalidate() {
	open := func() verbs.RKey {
		mw := must.Get(c.b.PD.AllocMW(verbs.MWType2))(c)
		key := verbs.NextRKey(mw.RKey())
		info := verbs.BindInfo{MR: c.b.MR, Addr: c.b.MR.Addr(), Length: 8, Access: verbs.AccessRemoteWrite}
		c.b.Do(verbs.SendWR{Opcode: verbs.OpBindMW, Bind: verbs.Bind{MW: mw, RKey: key, Info: info}})
		return key
	}
	key := open()
	c.b.Do(verbs.SendWR{Opcode: verbs.OpLocalInv, InvalidateRKey: key})
	key = open()
	c.b.Recv(0, 8)
	c.a.Do(verbs.SendWR{Opcode: verbs.OpSendInv, SGL: c.a.SGL(0, 8), InvalidateRKey: key})
	wc := c.b.AwaitSuccess()
	if wc.Flags&verbs.WCWithInv == 0 || wc.InvalidatedRKey != key {
		c.Fatalf("received %+v", wc)
	}
	// The window is invalid: an access terminates the connection.
	c.a.Post(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: c.a.SGL(0, 8), Remote: verbs.Remote{Addr: c.b.MR.Addr(), RKey: key}})
	must.Do(c, c.ca.WaitDisconnect(verbs.Forever))
}

// All operations work with every combination of markers and CRC, in both directions.
func TestFramings(t *testing.T) {
	for i := range 16 {
		cfg := func(markers, crc bool) Config {
			return Config{NIC: engine.Config{MPA: mpa.Config{Markers: markers, NoCRC: !crc}}}
		}
		a, b := cfg(i&1 != 0, i&2 != 0), cfg(i&4 != 0, i&8 != 0)
		t.Run(fmt.Sprintf("a markers=%v crc=%v, b markers=%v crc=%v", i&1 != 0, i&2 != 0, i&4 != 0, i&8 != 0), func(t *testing.T) {
			onConnectedPair(t, impaired, func(c *connectedPair) {
				for _, op := range operations {
					op.do(c)
				}
				// Markers are in the direction to the side that requested them.
				for _, x := range []struct {
					d       *Device
					markers bool
				}{{c.a.Dev.(*Device), i&1 != 0}, {c.b.Dev.(*Device), i&4 != 0}} {
					if n := counter(x.d, "mpa_rcvd_markers"); (n > 0) != x.markers {
						t.Errorf("%s received %d markers", x.d.Name(), n)
					}
				}
			}, a, b)
		})
	}
}

// In the client-server model the responder sends only after a message of the initiator. In the
// peer-to-peer model it may send first, with any kind of RTR.
func TestFirstMessageByConnectionModel(t *testing.T) {
	exchange := func(p *sim.Proc, c *connectedPair) (early bool, err error) {
		for _, e := range []*end{c.a, c.b} {
			e.Recv(0, 100)
		}
		c.b.Post(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.b.SGL(0, 100)})
		p.Sleep(time.Second)
		var wc [1]verbs.WC
		n, err := c.a.CQ.Poll(wc[:])
		if err != nil || n == 1 {
			return n == 1, err
		}
		c.a.Send(0, 100)
		for range 2 { // its own send, and the message
			c.a.AwaitSuccess()
		}
		return false, nil
	}
	for _, tc := range []struct {
		name  string
		cfg   Config
		waits bool
	}{
		{"client-server", Config{ClientServer: true}, true},
		{"revision 1", Config{NIC: engine.Config{MPA: mpa.Config{MaxRevision: 1}}}, true},
		{"peer-to-peer", Config{}, false},
		{"RTR by write", Config{NIC: engine.Config{MPA: mpa.Config{RTR: mpa.RTRWrite}}}, false},
		{"RTR by read", Config{NIC: engine.Config{MPA: mpa.Config{RTR: mpa.RTRRead}}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onConnectedPair(t, impaired, func(c *connectedPair) {
				early, err := exchange(c.p, c)
				if early == tc.waits {
					t.Errorf("the responder sent first: %v", early)
				}
				must.Do(c, err)
			}, tc.cfg)
		})
	}
}
