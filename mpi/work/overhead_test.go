package work_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// crossingPingpong is a ping-pong whose receives are posted when their messages are sent:
// all RTRs cross RTSs and are useless (Rashti 2010 §4.4.3). It returns the time of a message
// from both calls to the end of the receive.
func crossingPingpong(t *testing.T, cfg p2p.Config, bytes, trips int) (each time.Duration, all p2p.Stats) {
	t.Helper()
	o := testbedOptions(cfg, func(_ int, s mpi.Stats) { addStats(&all, &s.P2P) })
	var total time.Duration
	must.Get(mpihost.InWorld(testbed(2), func(e *transport.Env) error {
		return mpi.Run(e, o, func(w *mpi.World) error {
			buf, other := make([]byte, bytes), 1-w.Rank()
			for trip := range 2 * trips {
				if _, err := w.Sendrecv(nil, other, 2, nil, other, 2); err != nil {
					return err
				}
				began := w.Wtime()
				if trip%2 == w.Rank() {
					must.Do(t, w.Send(buf, other, 1))
					continue
				}
				if _, err := w.Recv(buf, other, 1); err != nil {
					return err
				}
				total += w.Wtime() - began
			}
			return nil
		})
	}))(t)
	return total / time.Duration(2*trips), all
}

// Speculation stops when the receives of a program are late for a while, and resumes when
// they are early again, although ranks make progress only in calls (Rashti 2010 §4.4.2).
func TestSpeculationStopsAndResumes(t *testing.T) {
	var all p2p.Stats
	o := testbedOptions(adaptive, func(_ int, s mpi.Stats) { addStats(&all, &s.P2P) })
	const each = 60
	must.Get(mpihost.InWorld(testbed(2), func(e *transport.Env) error {
		return mpi.Run(e, o, func(w *mpi.World) error {
			buf, other := make([]byte, 64<<10), 1-w.Rank()
			for i := range 2 * each {
				if _, err := w.Sendrecv(nil, other, 2, nil, other, 2); err != nil {
					return err
				}
				if w.Rank() == 1 {
					if _, err := w.Recv(buf, 0, 1); err != nil {
						return err
					}
					continue
				}
				if i >= each {
					w.Compute(50 * time.Microsecond)
				}
				must.Do(t, w.Send(buf, 1, 1))
			}
			return nil
		})
	}))(t)
	// Sixteen receives are observed before it stops, and as many before it resumes.
	if all.SpeculationStopped != 1 || all.SpeculationResumed != 1 || all.RTRsUsed < each-2*16-2 {
		t.Errorf("speculation was stopped %d times and resumed %d times; then %d RTRs were used", all.SpeculationStopped, all.SpeculationResumed, all.RTRsUsed)
	}
}

// The cost of useless speculation (Rashti 2010 §4.4.3, Fig. 4.19): less than 1 % of the time of
// eager messages, less than 3 % of that of rendezvous, and less than 0.04 % of the volume.
func TestOverheadOfSpeculation(t *testing.T) {
	const trips = 40
	for _, c := range []struct {
		bytes int
		limit float64 // in %
	}{{8, 1}, {1 << 10, 1}, {4 << 10, 1}, {128 << 10, 3}, {256 << 10, 3}, {1 << 20, 3}} {
		before, _ := crossingPingpong(t, rget, c.bytes, trips)
		after, all := crossingPingpong(t, speculative, c.bytes, trips)
		adapted, few := crossingPingpong(t, adaptive, c.bytes, trips)
		overhead := func(d time.Duration) float64 { return 100 * (d.Seconds()/before.Seconds() - 1) }
		what := fmt.Sprintf("%d bytes: ", c.bytes)
		bounds{-1, c.limit}.check(t, what+"longer by % without adaptation", overhead(after))
		bounds{-1, 1}.check(t, what+"longer by % with adaptation", overhead(adapted))
		if c.bytes <= 4<<10 {
			if all.RTRsReceived != 0 {
				t.Errorf("%s%d RTRs", what, all.RTRsReceived)
			}
			continue
		}
		if all.RTRsReceived != 2*trips || all.RTRsCrossed != all.RTRsReceived || few.RTRsReceived >= all.RTRsReceived {
			t.Errorf("%s%d RTRs, of which %d crossed; %d with adaptation", what, all.RTRsReceived, all.RTRsCrossed, few.RTRsReceived)
		}
		bounds{0.001, 0.04}.check(t, what+"more data by % without adaptation", extraVolume(&all))
		bounds{0.001, 0.04}.check(t, what+"more data by % with adaptation", extraVolume(&few))
	}
}

// extraVolume is the additional volume of speculation in %: unused RTRs and
// acknowledgements.
func extraVolume(s *p2p.Stats) float64 {
	const prefix = 16 // of every packet
	size := func(k wire.Kind) uint64 {
		var e wire.Encoder
		return prefix + uint64(len(e.Append(nil, &wire.Header{Kind: k, Memory: wire.Memory{Rails: 1}})))
	}
	extra := s.RTRsDropped*size(wire.RTR) + s.ControlMessages[wire.RTRAck]*size(wire.RTRAck) + s.ControlMessages[wire.RTSAck]*size(wire.RTSAck)
	return 100 * float64(extra) / float64(s.Sent[p2p.Eager].Bytes+s.Sent[p2p.Rendezvous].Bytes)
}
