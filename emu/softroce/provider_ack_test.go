package softroce

import (
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// The ACK of a message that was answered may be held back. A program that
// answers and then takes its QP down, in whichever way, has acknowledged all the
// same: the peer's sends succeed.
func TestDelayedAckIsSentBeforeQPIsDestroyed(t *testing.T) {
	for name, goes := range map[string]func(e *end) error{
		"destroyed": func(e *end) error { return e.QP.Close() },
		"in error":  func(e *end) error { return e.QP.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState) },
		"closed":    func(e *end) error { return e.Dev.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			da, db := loopbackPair(t)
			a, b := players(t, da, db, true)
			const rounds = 40 // enough for ACKs to be held back
			served := make(chan error, 1)
			go func() {
				for range rounds {
					_, err := b.Await()
					if err == nil {
						err = b.Serve(1)
					}
					if err != nil {
						served <- err
						return
					}
				}
				served <- goes(b.End)
			}()
			must.Do(t, talkAndConfirm(a, rounds))
			must.Do(t, <-served)
			// On a machine that is not busy: fewer ACKs than messages, nothing again.
			t.Logf("%d ACKs for %d messages, %d packets were sent again", db.nic.Count.AcksSent, rounds, da.nic.Count.Retransmits)
		})
	}
}

// talkAndConfirm sends messages, awaits an answer to each, and at last that all
// have arrived.
func talkAndConfirm(p *player, rounds int) error {
	p.Sends[0].Flags = verbs.SendSignaled
	for sent, came, arrived := 0, 0, 0; arrived < rounds; {
		if sent == came && sent < rounds {
			if err := p.Serve(1); err != nil {
				return err
			}
			sent++
		}
		wcs, err := p.Next()
		if err != nil {
			return fmt.Errorf("%w with %d messages sent, %d answered, %d confirmed", err, sent, came, arrived)
		}
		for _, wc := range wcs {
			if wc.Opcode != verbs.WCOpRecv {
				arrived++
				continue
			}
			came++
			if err := p.Receive(1); err != nil {
				return err
			}
		}
	}
	return nil
}
