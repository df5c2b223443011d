package dgiwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
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
func sendNumbered(e *end, to Source, count uint32) {
	const depth, slot = 8, 1 << 13
	for posted, done := uint32(0), uint32(0); done < count; {
		for ; posted < count && posted-done < depth; posted++ {
			at := int(posted%depth) * slot
			number(e.Buf[at:][:lengthOf(posted)], posted)
			e.send(to, at, lengthOf(posted))
		}
		e.Succeed()
		done++
	}
}

func TestRDDeliversExactlyOnceAndInOrderPerSource(t *testing.T) {
	const sources, count = 4, 250
	w, ds := netInWorld(t, 11, 1+sources, bad, Config{QP: reliable})
	sink := newEnd(t, ds[0], reliable)
	w.Go("sink", func(*sim.Proc) error {
		const slots, slot = 16, 1 << 13
		for i := range slots {
			sink.recv(i*slot, slot-verbs.GRHLen)
		}
		next := map[Source]uint32{}
		for range sources * count {
			wc := sink.Succeed()
			from, b := sink.message(&wc)
			n, err := numbered(b)
			if err != nil || n != next[from] || len(b) != lengthOf(n) {
				return fmt.Errorf("message %d of %d bytes from %v, want %d: %w", n, len(b), from, next[from], err)
			}
			next[from]++
			sink.recv(int(wc.WRID)-recvAt, slot-verbs.GRHLen)
		}
		sink.quiet(100 * time.Millisecond)
		return nil
	})
	for i, d := range ds[1:] {
		e := newEnd(t, d, reliable)
		w.Go(fmt.Sprint("source", i), func(*sim.Proc) error { sendNumbered(e, sink.where(), count); return nil })
	}
	must.Do(t, w.RunPrograms())
	for _, name := range []string{"drop_crc", "rd_drop_repeated", "rd_sent_again"} {
		if counter(ds[0], name)+counter(ds[1], name) == 0 {
			t.Errorf("the network was bad, but %s is 0", name)
		}
	}
	t.Logf("took %v of virtual time, %d events", w.Now(), w.Events())
}

// On UD what is lost is lost as a whole, and what arrives is right: a sender is
// done when its packets have left.
func TestUDLosesWholeMessages(t *testing.T) {
	const count = 400
	w, a, b := pairInWorld(t, 5, impair.Config{Specs: []impair.Spec{{LossPPM: 200_000, CorruptPPM: 100_000}}})
	source, sink := newEnd(t, a, unreliable), newEnd(t, b, unreliable)
	got := map[uint32]bool{}
	w.Go("source", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		sendNumbered(source, sink.where(), count)
		return nil
	})
	w.Go("sink", func(*sim.Proc) error {
		const slots, slot = 16, 1 << 13
		for i := range slots {
			sink.recv(i*slot, slot-verbs.GRHLen)
		}
		var wc [1]verbs.WC
		for {
			if n, _ := sink.NextWC(true, wc[:], 200*time.Millisecond); n == 0 {
				return nil
			}
			if wc[0].Status != verbs.WCSuccess {
				return fmt.Errorf("receive: %v", wc[0].Status)
			}
			_, m := sink.message(&wc[0])
			n, err := numbered(m)
			if err != nil || got[n] || len(m) != lengthOf(n) {
				return fmt.Errorf("message %d of %d bytes, had it: %v; %w", n, len(m), got[n], err)
			}
			got[n] = true
			sink.recv(int(wc[0].WRID)-recvAt, slot-verbs.GRHLen)
		}
	})
	must.Do(t, w.RunPrograms())
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
	e, f := newEnd(t, a, unreliable), newEnd(t, b, unreliable)
	w.Go("speaker", func(*sim.Proc) error {
		for _, to := range []Source{
			{f.where().Addr, f.where().QPN + 9}, // no such queue pair
			{addrPort("fd00::99", 0), 17},       // no such host
			f.where(),                           // no receive
		} {
			e.send(to, 0, 3000)
			e.Succeed()
		}
		e.quiet(time.Millisecond)
		return nil
	})
	must.Do(t, w.RunPrograms())
	if counter(b, "drop_qpn") != 3 || counter(b, "drop_no_receive") != 1 {
		t.Errorf("%d packets without a queue pair, %d messages without a receive", counter(b, "drop_qpn"), counter(b, "drop_no_receive"))
	}
}

// Both services may share a device, and do not hear each other.
func TestBothServicesOnOneDevice(t *testing.T) {
	w, a, b := pairInWorld(t, 3, impair.Config{})
	var cs []exchange
	for _, opt := range []QPOptions{unreliable, reliable} {
		c := exchange{newEnd(t, a, opt), newEnd(t, b, opt), 20}
		cs = append(cs, c)
		if overRD(c.client.QP) != opt.Reliable || c.client.QP.Type() != verbs.QPTypeUD {
			t.Errorf("%+v: reliable %v, type %v", opt, overRD(c.client.QP), c.client.QP.Type())
		}
		c.inWorld(w)
	}
	must.Do(t, w.RunPrograms())
	w.Go("stranger", func(*sim.Proc) error {
		cs[0].client.send(cs[1].server.where(), 0, 10)
		cs[0].client.Succeed()
		cs[0].client.quiet(time.Millisecond)
		return nil
	})
	must.Do(t, w.RunPrograms())
	if n := counter(b, "drop_service"); n != 1 {
		t.Errorf("%d packets of UD for a queue pair of RD", n)
	}
}

// overRD reports whether a queue pair is one of RD, which verbs cannot tell.
func overRD(qp verbs.QP) bool {
	q, ok := qp.(*queuePair)
	return ok && q.q.Reliable()
}
