package softroce

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestXRCTargetHandlesCloseIndependently(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) {
		x := must.Get(d.OpenXRCD())(t)
		first := must.Get(d.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: x}))(t)
		second := must.Get(d.OpenQP(x, first.QPN()))(t)
		third := must.Get(d.OpenQP(x, first.QPN()))(t)
		if first == second || second == third {
			t.Error("handles are shared")
		}
		must.Do(t, first.Close())
		must.Fail(t, "closed twice", first.Close(), verbs.ErrClosed)
		if h := second.(*queuePair).handles; len(h) != 2 || h[0] != second {
			t.Errorf("events go to %v", h)
		}
		must.Do(t, second.Close())
		if _, err := third.Query(); err != nil {
			t.Errorf("the last handle: %v", err)
		}
		must.Do(t, third.Close())
		_, err := d.OpenQP(x, first.QPN())
		must.Fail(t, "open of a destroyed QP", err, verbs.ErrNotFound)
		must.Do(t, x.Close())
	}, idle)
}

// A connection belongs to the queue pair, not to the handle it was made with.
func TestConnectionSurvivesCloseOfOneHandle(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) {
		x := must.Get(d.OpenXRCD())(t)
		first := must.Get(d.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: x}))(t)
		second := must.Get(d.OpenQP(x, first.QPN()))(t)
		p := first.(*queuePair).qpState
		p.conn = &connection{m: &d.cm, qp: p, cond: d.Driver().NewCond(nil)}
		if err := first.Close(); err != nil || p.conn == nil {
			t.Errorf("%v, connection %v", err, p.conn)
		}
		if err := second.Close(); err != nil || p.conn != nil {
			t.Errorf("%v, connection %v", err, p.conn)
		}
	}, idle)
}

// Goroutines may share a queue pair that joins and leaves a multicast group. The race
// detector checks it.
func TestMulticastIsSafeForConcurrentUse(t *testing.T) {
	ud := providertest.NewEnd(t, loopback(t, "127.71.2.2", udplink.Config{}), verbs.QPTypeUD)
	group := verbs.GIDFrom(netip.MustParseAddr("239.71.0.1"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 8 {
				if err := ud.QP.AttachMulticast(group); err != nil {
					t.Error(err)
				}
				if err := ud.QP.DetachMulticast(group); err != nil && !errors.Is(err, verbs.ErrInvalid) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	must.Fail(t, "detach again", ud.QP.DetachMulticast(group), verbs.ErrInvalid)
	must.Do(t, ud.QP.Close())
}

// The ACK of a message may be delayed if the program answers it. It is sent before
// the QP is destroyed, moved to the error state, or closed with its device: the peer's
// sends succeed.
func TestDelayedAckIsSentBeforeQPIsDestroyed(t *testing.T) {
	for name, endQP := range map[string]func(e *end) error{
		"destroyed": func(e *end) error { return e.QP.Close() },
		"in error":  func(e *end) error { return e.QP.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState) },
		"closed":    func(e *end) error { return e.Dev.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			da, db := loopbackPair(t)
			a, b := messengers(t, da, db, true)
			const rounds = 40 // enough for ACKs to be delayed
			served := make(chan error, 1)
			go func() {
				for range rounds {
					_, err := b.AwaitMessages()
					if err == nil {
						err = b.PostSends(1)
					}
					if err != nil {
						served <- err
						return
					}
				}
				served <- endQP(b.End)
			}()
			must.Do(t, sendAndAwaitAnswers(a, rounds))
			must.Do(t, <-served)
			// On an idle machine: fewer ACKs than messages, and no retransmission.
			t.Logf("%d ACKs for %d messages, %d retransmissions", db.nic.Count.AcksSent, rounds, da.nic.Count.Retransmits)
		})
	}
}

// sendAndAwaitAnswers sends messages, awaits an answer to each, and the completions of all
// sends.
func sendAndAwaitAnswers(p *messenger, rounds int) error {
	p.Sends[0].Flags = verbs.SendSignaled
	for sent, answered, completed := 0, 0, 0; completed < rounds; {
		if sent == answered && sent < rounds {
			if err := p.PostSends(1); err != nil {
				return err
			}
			sent++
		}
		wcs, err := p.AwaitWCs()
		if err != nil {
			return fmt.Errorf("%w with %d messages sent, %d answered, %d completed", err, sent, answered, completed)
		}
		for _, wc := range wcs {
			if wc.Opcode != verbs.WCOpRecv {
				completed++
				continue
			}
			answered++
			if err := p.PostRecvs(1); err != nil {
				return err
			}
		}
	}
	return nil
}
