package softiwarp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/verbs"
)

// rough cuts streams at random and holds them up.
var rough = sim.NetConfig{Stream: sim.StreamConfig{CutPPM: 300_000, StallPPM: 20_000, StallFor: 50 * time.Microsecond, BufferBytes: 20_000}}

// operations are all operations of iWARP, each with its expected effect.
var operations = []struct {
	name string
	do   func(c *couple) error
}{
	{"send", func(c *couple) error {
		return c.message(verbs.SendWR{Opcode: verbs.OpSend}, 50_000, verbs.WC{Opcode: verbs.WCOpRecv})
	}},
	{"empty send", func(c *couple) error {
		return c.message(verbs.SendWR{Opcode: verbs.OpSend}, 0, verbs.WC{Opcode: verbs.WCOpRecv})
	}},
	{"inline send", func(c *couple) error {
		return c.message(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendInline}, 61, verbs.WC{Opcode: verbs.WCOpRecv})
	}},
	{"immediate data alone", func(c *couple) error {
		return c.message(verbs.SendWR{Opcode: verbs.OpSendImm, Imm: 0x01020304}, 0, verbs.WC{Opcode: verbs.WCOpRecv, Flags: verbs.WCWithImm, Imm: 0x01020304})
	}},
	{"write", func(c *couple) error {
		want := c.a.fill(0, 40_001, 3)
		if err := c.a.do(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: c.a.sgl(0, len(want)), Remote: c.b.at(7)}); err != nil {
			return err
		}
		if err := c.fenceOff(); err != nil {
			return err
		}
		return same(want, c.b.buf[7:7+len(want)])
	}},
	{"write with immediate", func(c *couple) error {
		want := c.a.fill(0, 9000, 4)
		if err := c.b.recv(0, 0); err != nil {
			return err
		}
		if err := c.a.do(verbs.SendWR{Opcode: verbs.OpRDMAWriteImm, SGL: c.a.sgl(0, len(want)), Remote: c.b.at(100), Imm: 77}); err != nil {
			return err
		}
		wc, err := c.b.succeed()
		if err != nil || wc.Opcode != verbs.WCOpRecvRDMAWithImm || wc.Imm != 77 || wc.ByteLen != 9000 {
			return fmt.Errorf("received %+v, %w", wc, err)
		}
		return same(want, c.b.buf[100:100+len(want)])
	}},
	{"read", func(c *couple) error {
		want := c.b.fill(5, 30_003, 5)
		// Two pieces of memory, the second first.
		sgl := []verbs.SGE{verbs.SGEOf(c.a.mr, 40_000, 20_000), verbs.SGEOf(c.a.mr, 0, 10_003)}
		if err := c.a.do(verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: sgl, Remote: c.b.at(5)}); err != nil {
			return err
		}
		return same(want, append(append([]byte(nil), c.a.buf[40_000:60_000]...), c.a.buf[:10_003]...))
	}},
	{"empty read", func(c *couple) error { return c.a.do(verbs.SendWR{Opcode: verbs.OpRDMARead, Remote: c.b.at(0)}) }},
	{"read by the responder", func(c *couple) error {
		want := c.a.fill(5, 9003, 6)
		if err := c.b.do(verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: c.b.sgl(1, 9003), Remote: c.a.at(5)}); err != nil {
			return err
		}
		return same(want, c.b.buf[1:9004])
	}},
	{"more reads than may be under way", func(c *couple) error {
		for i := range 12 {
			c.b.fill(i*1000, 1000, byte(i))
			if err := c.a.post(verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: c.a.sgl(i*1000, 1000), Remote: c.b.at(i * 1000)}); err != nil {
				return err
			}
		}
		for i := range uint64(12) {
			if wc, err := c.a.succeed(); err != nil || wc.WRID != i {
				return fmt.Errorf("%+v, %w", wc, err)
			}
		}
		return same(c.b.buf[:12_000], c.a.buf[:12_000])
	}},
	{"atomics", (*couple).atomics},
	{"windows", (*couple).windows},
	{"invalidate", (*couple).invalidate},
}

func same(want, got []byte) error {
	if !bytes.Equal(want, got) {
		return fmt.Errorf("%d bytes differ", len(want))
	}
	return nil
}

// fenceOff waits until a's writes have arrived, with a read after them.
func (c *couple) fenceOff() error {
	return c.a.do(verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: c.a.sgl(65_535, 1), Remote: c.b.at(65_535)})
}

// message sends n bytes from a to b, which must complete there like want.
func (c *couple) message(wr verbs.SendWR, n int, want verbs.WC) error {
	data := c.a.fill(0, n, 9)
	if wr.Flags&verbs.SendInline != 0 {
		wr.Inline = data
	} else if n > 0 {
		wr.SGL = []verbs.SGE{verbs.SGEOf(c.a.mr, 0, n/3), verbs.SGEOf(c.a.mr, n/3, n-n/3)}
	}
	if err := c.b.recv(3, n); err != nil {
		return err
	}
	if err := c.a.do(wr); err != nil {
		return err
	}
	wc, err := c.b.succeed()
	if err != nil {
		return err
	}
	if wc.Opcode != want.Opcode || wc.Flags != want.Flags || wc.Imm != want.Imm || int(wc.ByteLen) != n || wc.QPN != c.b.qp.QPN() {
		return fmt.Errorf("received %+v, want %+v", wc, want)
	}
	return same(data, c.b.buf[3:3+n])
}

func (c *couple) atomics() error {
	word := c.b.buf[64:72]
	binary.NativeEndian.PutUint64(word, 40)
	ask := func(wr verbs.SendWR, before, after uint64) error {
		wr.SGL, wr.Remote = c.a.sgl(8, 8), c.b.at(64)
		if err := c.a.do(wr); err != nil {
			return err
		}
		got, now := binary.NativeEndian.Uint64(c.a.buf[8:]), binary.NativeEndian.Uint64(word)
		if got != before || now != after {
			return fmt.Errorf("%v gave %d and left %d, want %d and %d", wr.Opcode, got, now, before, after)
		}
		return nil
	}
	return errors.Join(
		ask(verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd, Atomic: verbs.Atomic{CompareAdd: 2}}, 40, 42),
		ask(verbs.SendWR{Opcode: verbs.OpAtomicCmpAndSwp, Atomic: verbs.Atomic{CompareAdd: 41, Swap: 1}}, 42, 42),
		ask(verbs.SendWR{Opcode: verbs.OpAtomicCmpAndSwp, Atomic: verbs.Atomic{CompareAdd: 42, Swap: 1}}, 42, 1),
	)
}

// windows opens a window of each type at b and writes through it.
func (c *couple) windows() error {
	info := verbs.BindInfo{MR: c.b.mr, Addr: c.b.mr.Addr() + 500, Length: 16, Access: verbs.AccessRemoteWrite}
	through := func(key verbs.RKey, text string) error {
		copy(c.a.buf, text)
		err := c.a.do(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: c.a.sgl(0, len(text)), Remote: verbs.Remote{Addr: c.b.mr.Addr() + 500, RKey: key}})
		if err == nil {
			err = c.fenceOff()
		}
		if err == nil && string(c.b.buf[500:500+len(text)]) != text {
			err = fmt.Errorf("window has %q", c.b.buf[500:516])
		}
		return err
	}
	mw, err := c.b.pd.AllocMW(verbs.MWType1)
	if err != nil {
		return err
	}
	key, err := c.b.qp.BindMW(mw, 1, verbs.SendSignaled, info)
	if err != nil {
		return err
	}
	if wc, err := c.b.succeed(); err != nil || wc.Opcode != verbs.WCOpBindMW {
		return fmt.Errorf("bind %+v, %w", wc, err)
	}
	if err := through(key, "type one"); err != nil {
		return err
	}
	if mw, err = c.b.pd.AllocMW(verbs.MWType2); err != nil {
		return err
	}
	key = verbs.NextRKey(mw.RKey())
	if err := c.b.do(verbs.SendWR{Opcode: verbs.OpBindMW, Bind: verbs.Bind{MW: mw, RKey: key, Info: info}}); err != nil {
		return err
	}
	return through(key, "type two")
}

// invalidate closes windows of b's: by b itself, and by a message of a's.
func (c *couple) invalidate() error {
	open := func() (verbs.RKey, error) {
		mw, err := c.b.pd.AllocMW(verbs.MWType2)
		if err != nil {
			return 0, err
		}
		key := verbs.NextRKey(mw.RKey())
		info := verbs.BindInfo{MR: c.b.mr, Addr: c.b.mr.Addr(), Length: 8, Access: verbs.AccessRemoteWrite}
		return key, c.b.do(verbs.SendWR{Opcode: verbs.OpBindMW, Bind: verbs.Bind{MW: mw, RKey: key, Info: info}})
	}
	key, err := open()
	if err != nil {
		return err
	}
	if err := c.b.do(verbs.SendWR{Opcode: verbs.OpLocalInv, InvalidateRKey: key}); err != nil {
		return err
	}
	if key, err = open(); err != nil {
		return err
	}
	if err := c.b.recv(0, 8); err != nil {
		return err
	}
	if err := c.a.do(verbs.SendWR{Opcode: verbs.OpSendInv, SGL: c.a.sgl(0, 8), InvalidateRKey: key}); err != nil {
		return err
	}
	wc, err := c.b.succeed()
	if err != nil || wc.Flags&verbs.WCWithInv == 0 || wc.InvalidatedRKey != key {
		return fmt.Errorf("received %+v, %w", wc, err)
	}
	// It is closed: to use it ends the connection.
	if err := c.a.post(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: c.a.sgl(0, 8), Remote: verbs.Remote{Addr: c.b.mr.Addr(), RKey: key}}); err != nil {
		return err
	}
	return c.ca.WaitDisconnect(verbs.Forever)
}

func TestOperations(t *testing.T) {
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) { coupled(t, rough, op.do) })
	}
}

// Every way to frame a stream carries every operation, in both directions.
func TestFramings(t *testing.T) {
	for i := range 16 {
		cfg := func(markers, crc bool) Config {
			return Config{NIC: engine.Config{MPA: mpa.Config{Markers: markers, NoCRC: !crc}}}
		}
		a, b := cfg(i&1 != 0, i&2 != 0), cfg(i&4 != 0, i&8 != 0)
		t.Run(fmt.Sprintf("a markers=%v crc=%v, b markers=%v crc=%v", i&1 != 0, i&2 != 0, i&4 != 0, i&8 != 0), func(t *testing.T) {
			coupled(t, rough, func(c *couple) error {
				for _, op := range operations {
					if err := op.do(c); err != nil {
						return fmt.Errorf("%s: %w", op.name, err)
					}
				}
				// Markers are in what goes to the side that asked for them.
				for _, x := range []struct {
					d       *Device
					asked   bool
					counter string
				}{{c.a.dev.(*Device), i&1 != 0, "mpa_rcvd_markers"}, {c.b.dev.(*Device), i&4 != 0, "mpa_rcvd_markers"}} {
					if n := counter(x.d, x.counter); (n > 0) != x.asked {
						t.Errorf("%s took %d markers", x.d.Name(), n)
					}
				}
				return nil
			}, a, b)
		})
	}
}

// In the client-server model the side that accepts is silent until the other has
// spoken; in the peer-to-peer model it may be the first, whichever kind of RTR
// was agreed on.
func TestFirstMessageByConnectionModel(t *testing.T) {
	play := func(p *sim.Proc, c *couple) (early bool, err error) {
		for _, e := range []*end{c.a, c.b} {
			if err := e.recv(0, 100); err != nil {
				return false, err
			}
		}
		if err := c.b.post(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.b.sgl(0, 100)}); err != nil {
			return false, err
		}
		p.Sleep(time.Second)
		var wc [1]verbs.WC
		n, err := c.a.cq.Poll(wc[:])
		if err != nil || n == 1 {
			return n == 1, err
		}
		if err := c.a.send(0, 100); err != nil {
			return false, err
		}
		for range 2 { // its own send, and the message
			if _, err := c.a.succeed(); err != nil {
				return false, err
			}
		}
		return false, nil
	}
	for _, tc := range []struct {
		name   string
		cfg    Config
		silent bool
	}{
		{"client-server", Config{ClientServer: true}, true},
		{"revision 1", Config{NIC: engine.Config{MPA: mpa.Config{MaxRevision: 1}}}, true},
		{"peer-to-peer", Config{}, false},
		{"RTR by write", Config{NIC: engine.Config{MPA: mpa.Config{RTR: mpa.RTRWrite}}}, false},
		{"RTR by read", Config{NIC: engine.Config{MPA: mpa.Config{RTR: mpa.RTRRead}}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			coupled(t, rough, func(c *couple) error {
				early, err := play(c.p, c)
				if early == tc.silent {
					t.Errorf("the responder was first: %v", early)
				}
				return err
			}, tc.cfg)
		})
	}
}
