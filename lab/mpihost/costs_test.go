package mpihost_test

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// timeAtReceiver runs send on rank 0 and receive on rank 1 of two hosts, or of one, and returns how
// long receive takes after both have synchronized.
func timeAtReceiver(t *testing.T, perHost int, costs verbs.Costs, send, receive func(*mpi.World) error) (took time.Duration) {
	t.Helper()
	costs.Control, costs.Post, costs.Poll = 1000, 100, 50
	f := mpihost.Fabric{Ranks: 2, PerHost: perHost, Costs: &costs, Limit: time.Minute}
	o := mpi.Options{Carrier: carrier.Config{Design: carrier.SRQ}}
	o.P2P.EagerLimit = 4096
	o.Carrier.Reuse.Off = true
	_, err := mpihost.InWorld(f, func(e *transport.Env) error {
		return mpi.Run(e, o, func(w *mpi.World) error {
			for range 3 { // the first connects
				if err := w.Barrier(); err != nil {
					return err
				}
			}
			if w.Rank() == 0 {
				return send(w)
			}
			began := w.Wtime()
			err := receive(w)
			took = w.Wtime() - began
			return err
		})
	})
	must.Do(t, err)
	return took
}

// A message costs its copies and the library's time at both ends. An unexpected one is copied
// once more, when its receive is posted.
func TestMessagesTakeTheTimeOfTheHost(t *testing.T) {
	const bytes, late = 1000, 100 * time.Microsecond
	send := func(w *mpi.World) error { return w.Send(make([]byte, bytes), 1, 1) }
	receive := func(w *mpi.World) error { return must.Err(w.Recv(make([]byte, bytes), 0, 1)) }
	receiveLate := func(w *mpi.World) error {
		w.Compute(late)
		if _, err := w.Probe(0, 1); err != nil { // the message is unexpected
			return err
		}
		return receive(w)
	}
	perCopy := verbs.Costs{Copy: verbs.LinearCost{Base: 3000}}
	for name, c := range map[string]struct {
		perHost int
		costs   verbs.Costs
		receive func(*mpi.World) error
		want    time.Duration
	}{
		"copies":                     {1, perCopy, receive, 2 * 3000},
		"copies in shared memory":    {2, perCopy, receive, 2 * 3000},
		"copies of a late receive":   {1, perCopy, receiveLate, 2 * 3000}, // the sender's is over by then
		"library":                    {1, verbs.Costs{Message: 700}, receive, 2 * 700},
		"library in a late receive":  {1, verbs.Costs{Message: 700}, receiveLate, 2 * 700}, // rank 0 has sent its last barrier, too
		"inline data is not so long": {1, verbs.Costs{Inline: verbs.LinearCost{Base: 9000}, InlineBytes: 500}, receive, 0},
	} {
		without := timeAtReceiver(t, c.perHost, verbs.Costs{}, send, c.receive)
		got := timeAtReceiver(t, c.perHost, c.costs, send, c.receive) - without
		if slack := 200 * time.Nanosecond; got < c.want-slack || got > c.want+slack {
			t.Errorf("%s: %v more than without costs, want %v", name, got, c.want)
		}
	}
}
