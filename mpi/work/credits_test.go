package work_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// A sender to a busy rank sends eagerly until its credits are used, and then by
// rendezvous. Messages are eager again after the receiver has progressed. There is no RNR
// NAK, and all messages arrive in order.
func TestSenderWithoutCreditsFallsBackToRendezvous(t *testing.T) {
	skipUnderRaceDetector(t)
	const credits, messages, size = 8, 300, 1000
	for _, protocol := range []p2p.Protocol{p2p.RGET, p2p.RPUT, p2p.Speculative} {
		for _, design := range []carrier.Design{carrier.SendRecv, carrier.RingSendRecv, carrier.UD} {
			t.Run(fmt.Sprintf("%s %v", design, protocol), func(t *testing.T) {
				o := mpi.Options{P2P: p2p.Config{Protocol: protocol}}
				o.Carrier = carrier.Config{Design: design, Receives: credits}
				o.Carrier.Datagrams.Window, o.Carrier.Ring.Slots = credits, credits
				var sender mpi.Stats
				o.OnFinalize = func(rank int, s mpi.Stats) {
					if rank == 0 {
						sender = s
					}
				}
				var world *mpihost.World
				f := mpihost.Fabric{Ranks: 2, Limit: time.Minute, Script: func(w *mpihost.World) { world = w }}
				rnrNAKs := uint64(0)
				must.Get(mpihost.InWorld(f, func(e *transport.Env) error {
					return mpi.Run(e, o, func(w *mpi.World) error {
						must.Do(t, sendToBusyRank(w, messages, size))
						for _, c := range world.Device(1, 0).Counters() {
							if c.Name == "sent_rnr_nak" {
								rnrNAKs += c.Value
							}
						}
						return nil
					})
				}))(t)
				eager, fallbacks := sender.P2P.Sent[p2p.Eager].Messages, sender.P2P.CreditFallbacks
				if fallbacks < messages-4*credits || eager < messages*9/10 {
					t.Errorf("%d messages were eager, %d were fallbacks to rendezvous", eager, fallbacks)
				}
				if rnrNAKs != 0 {
					t.Errorf("%d RNR NAKs", rnrNAKs)
				}
			})
		}
	}
}

// sendToBusyRank sends messages while the receiver computes, and as many while it receives.
func sendToBusyRank(w *mpi.World, messages, size int) error {
	if w.Rank() == 0 {
		var sends []*mpi.Request
		for i := range messages {
			r, err := w.Isend(numberedMessage(i, size), 1, 1)
			if err != nil {
				return err
			}
			sends = append(sends, r)
		}
		if _, err := mpi.WaitAll(sends); err != nil {
			return err
		}
		for i := range messages {
			if err := w.Send(numberedMessage(i, size), 1, 2); err != nil {
				return err
			}
			if i%4 == 3 { // wait until credits return
				if _, err := w.Recv(nil, 1, 3); err != nil {
					return err
				}
			}
		}
		return nil
	}
	w.Compute(10 * time.Millisecond)
	buf := make([]byte, size)
	for i := range 2 * messages {
		if _, err := w.Recv(buf, 0, 1+i/messages); err != nil {
			return err
		}
		if got := int(binary.LittleEndian.Uint32(buf)); got != i%messages {
			return fmt.Errorf("message %d has the number %d", i, got)
		}
		if i >= messages && i%4 == 3 {
			if err := w.Send(nil, 0, 3); err != nil {
				return err
			}
		}
	}
	return nil
}

// numberedMessage returns a message that contains its number.
func numberedMessage(i, size int) []byte {
	b := make([]byte, size)
	binary.LittleEndian.PutUint32(b, uint32(i))
	return b
}
