package dgiwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// number makes a message that says which it is: n, and bytes that follow from it.
func number(b []byte, n uint32) {
	binary.BigEndian.PutUint32(b, n)
	for i := 4; i < len(b); i++ {
		b[i] = byte(uint32(i)*7 + n)
	}
}

// numbered reads such a message.
func numbered(b []byte) (uint32, error) {
	if len(b) < 4 {
		return 0, fmt.Errorf("message of %d bytes", len(b))
	}
	n := binary.BigEndian.Uint32(b)
	want := make([]byte, len(b))
	number(want, n)
	if !bytes.Equal(b, want) {
		return n, fmt.Errorf("message %d was changed on the way", n)
	}
	return n, nil
}

// lengthOf is the length of message n: of one packet, and of several.
func lengthOf(n uint32) int { return 4 + int(n*1237%5000) }

// sendNumbered sends messages 0 to count-1, a few at a time, and waits for their
// completions.
func sendNumbered(e *end, to Source, count uint32) error {
	const depth, slot = 8, 1 << 13
	for posted, done := uint32(0), uint32(0); done < count; {
		for ; posted < count && posted-done < depth; posted++ {
			at := int(posted%depth) * slot
			number(e.buf[at:][:lengthOf(posted)], posted)
			if err := e.send(to, at, lengthOf(posted)); err != nil {
				return err
			}
		}
		if _, err := e.succeed(); err != nil {
			return fmt.Errorf("after %d: %w", done, err)
		}
		done++
	}
	return nil
}

func TestRDDeliversExactlyOnceAndInOrderPerSource(t *testing.T) {
	const sources, count = 4, 250
	w, ds := netInWorld(t, 11, 1+sources, bad, Config{QP: reliable})
	sink := mustEnd(t, ds[0], reliable)
	w.Go("sink", func(*sim.Proc) error {
		const slots, slot = 16, 1 << 13
		for i := range slots {
			if err := sink.recv(i*slot, slot-verbs.GRHLen); err != nil {
				return err
			}
		}
		next := map[Source]uint32{}
		for range sources * count {
			wc, err := sink.succeed()
			if err != nil {
				return err
			}
			from, b, err := sink.message(&wc)
			if err != nil {
				return err
			}
			n, err := numbered(b)
			if err != nil || n != next[from] || len(b) != lengthOf(n) {
				return fmt.Errorf("message %d of %d bytes from %v, want %d: %w", n, len(b), from, next[from], err)
			}
			next[from]++
			if err := sink.recv(int(wc.WRID)-recvAt, slot-verbs.GRHLen); err != nil {
				return err
			}
		}
		return sink.quiet(100 * time.Millisecond)
	})
	for i, d := range ds[1:] {
		e := mustEnd(t, d, reliable)
		w.Go(fmt.Sprint("source", i), func(*sim.Proc) error { return sendNumbered(e, sink.where(), count) })
	}
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"drop_crc", "rd_drop_repeated", "rd_sent_again"} {
		if counter(ds[0], name)+counter(ds[1], name) == 0 {
			t.Errorf("the network was bad, but %s is 0", name)
		}
	}
	t.Logf("took %v of virtual time, %d events", w.Now(), w.Events())
}

func counter(d *Device, name string) uint64 {
	for _, c := range d.Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	panic("no counter " + name)
}

// On UD what is lost is lost as a whole, and what arrives is right: a sender is
// done when its packets have left.
func TestUDLosesWholeMessages(t *testing.T) {
	const count = 400
	w, a, b := pairInWorld(t, 5, impair.Config{Specs: []impair.Spec{{LossPPM: 200_000, CorruptPPM: 100_000}}})
	source, sink := mustEnd(t, a, unreliable), mustEnd(t, b, unreliable)
	got := map[uint32]bool{}
	w.Go("source", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		return sendNumbered(source, sink.where(), count)
	})
	w.Go("sink", func(*sim.Proc) error {
		const slots, slot = 16, 1 << 13
		for i := range slots {
			if err := sink.recv(i*slot, slot-verbs.GRHLen); err != nil {
				return err
			}
		}
		var wc [1]verbs.WC
		for {
			if n, _ := sink.nextWC(true, wc[:], 200*time.Millisecond); n == 0 {
				return nil
			}
			if wc[0].Status != verbs.WCSuccess {
				return fmt.Errorf("receive: %v", wc[0].Status)
			}
			_, m, err := sink.message(&wc[0])
			if err != nil {
				return err
			}
			n, err := numbered(m)
			if err != nil || got[n] || len(m) != lengthOf(n) {
				return fmt.Errorf("message %d of %d bytes, had it: %v; %w", n, len(m), got[n], err)
			}
			got[n] = true
			if err := sink.recv(int(wc[0].WRID)-recvAt, slot-verbs.GRHLen); err != nil {
				return err
			}
		}
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
	if len(got) < count/5 || len(got) > count*4/5 {
		t.Errorf("%d of %d messages arrived of packets of which a quarter was lost", len(got), count)
	}
	if counter(b, "drop_crc") == 0 || counter(b, "drop_expired") == 0 {
		t.Error("nothing was damaged, or no message was given up for want of a part")
	}
}

// A UD send completes also without a receiver.
func TestUDSendWithoutPeerCompletes(t *testing.T) {
	w, a, b := pairInWorld(t, 1, impair.Config{})
	e, f := mustEnd(t, a, unreliable), mustEnd(t, b, unreliable)
	w.Go("speaker", func(*sim.Proc) error {
		for _, to := range []Source{
			{f.where().Addr, f.where().QPN + 9}, // no such queue pair
			{addrPort("fd00::99", 0), 17},       // no such host
			f.where(),                           // no receive
		} {
			if err := e.send(to, 0, 3000); err != nil {
				return err
			}
			if _, err := e.succeed(); err != nil {
				return err
			}
		}
		return e.quiet(time.Millisecond)
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
	if counter(b, "drop_qpn") != 3 || counter(b, "drop_no_receive") != 1 {
		t.Errorf("%d packets without a queue pair, %d messages without a receive", counter(b, "drop_qpn"), counter(b, "drop_no_receive"))
	}
}

// Both services may share a device, and do not hear each other.
func TestBothServicesOnOneDevice(t *testing.T) {
	w, a, b := pairInWorld(t, 3, impair.Config{})
	type couple struct{ client, server *end }
	var cs []couple
	for _, opt := range []QPOptions{unreliable, reliable} {
		c := couple{mustEnd(t, a, opt), mustEnd(t, b, opt)}
		cs = append(cs, c)
		if overRD(c.client.qp) != opt.Reliable || c.client.qp.Type() != verbs.QPTypeUD {
			t.Errorf("%+v: reliable %v, type %v", opt, overRD(c.client.qp), c.client.qp.Type())
		}
		w.Go(fmt.Sprint("server ", opt.Reliable), func(*sim.Proc) error { return echoServer(c.server, 20, func() {}) })
		w.Go(fmt.Sprint("client ", opt.Reliable), func(p *sim.Proc) error {
			p.Sleep(time.Millisecond)
			return echoClient(c.client, c.server.where(), 20)
		})
	}
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
	w.Go("stranger", func(*sim.Proc) error {
		if err := cs[0].client.send(cs[1].server.where(), 0, 10); err != nil {
			return err
		}
		if _, err := cs[0].client.succeed(); err != nil {
			return err
		}
		return cs[0].client.quiet(time.Millisecond)
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
	if n := counter(b, "drop_service"); n != 1 {
		t.Errorf("%d packets of UD for a queue pair of RD", n)
	}
}

// overRD reports whether a queue pair is one of RD, which verbs cannot tell.
func overRD(qp verbs.QP) bool {
	q, ok := qp.(*queuePair)
	return ok && q.q.Reliable()
}
