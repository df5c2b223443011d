package softroce

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// The ACK of a message that was answered may be held back. A program that
// answers and then takes its QP down, in whichever way, has acknowledged all the
// same: the peer's sends succeed.
func TestDelayedAckIsSentBeforeQPIsDestroyed(t *testing.T) {
	for name, goes := range map[string]func(e *end) error{
		"destroyed": func(e *end) error { return e.qp.Close() },
		"in error":  func(e *end) error { return e.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState) },
		"closed":    func(e *end) error { return e.dev.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			da, db := loopbackPair(t)
			a, b, err := pingPongEnds(da, db)
			if err != nil {
				t.Fatal(err)
			}
			const rounds = 40 // enough for ACKs to be held back
			served := make(chan error, 1)
			go func() {
				p := newPlayer(b, true)
				for range rounds {
					err := p.await()
					if err == nil {
						err = p.serve()
					}
					if err != nil {
						served <- err
						return
					}
				}
				served <- goes(b)
			}()
			if err := talkAndConfirm(a, rounds); err != nil {
				t.Fatal(err)
			}
			if err := <-served; err != nil {
				t.Fatal(err)
			}
			// On a machine that is not busy: fewer ACKs than messages, nothing again.
			t.Logf("%d ACKs for %d messages, %d packets were sent again", db.nic.Count.AcksSent, rounds, da.nic.Count.Retransmits)
		})
	}
}

// talkAndConfirm sends messages, awaits an answer to each, and at last that all
// have arrived.
func talkAndConfirm(e *end, rounds int) error {
	p := newPlayer(e, true)
	p.send[0].Flags = verbs.SendSignaled
	for sent, came, arrived := 0, 0, 0; arrived < rounds; {
		if sent == came && sent < rounds {
			if err := p.serve(); err != nil {
				return err
			}
			sent++
		}
		began := time.Now()
		n, err := p.nextWC(true, p.wc[:1])
		if err != nil {
			return err
		}
		if took := time.Since(began); took > 30*time.Second {
			return fmt.Errorf("nothing for %v with %d messages sent, %d answered, %d confirmed", took, sent, came, arrived)
		}
		for _, wc := range p.wc[:n] {
			switch {
			case wc.Status != verbs.WCSuccess:
				return fmt.Errorf("%v: %v with %d messages sent, %d answered, %d confirmed", wc.Opcode, wc.Status, sent, came, arrived)
			case wc.Opcode == verbs.WCOpRecv:
				came++
				if err := p.receives(1); err != nil {
					return err
				}
			default:
				arrived++
			}
		}
	}
	return nil
}
