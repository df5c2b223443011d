package experiment

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/lab/perflab"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/work"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs"
)

// MeasureBase measures a base figure, such as a latency or bandwidth of bare verbs, between two hosts
// of the platform. The result is in the unit of the figure.
func MeasureBase(p *nics.Platform, b *nics.BaseFigure) (float64, error) {
	f := mpihost.Fabric{Ranks: 2, Limit: time.Minute}
	f.SetPlatform(p)
	if b.Measure.Workload != "" {
		return runWorkload(f, b.Measure)
	}
	program, err := program(b.Measure)
	if err != nil {
		return 0, err
	}
	service, err := perflab.ServiceOf(p.Provider, "")
	if err != nil {
		return 0, err
	}
	const pairs = 1
	figures, err := perflab.InSimulation(context.Background(), f, service, pairs, program)
	if err != nil {
		return 0, err
	}
	v := figures[0].Value
	if from := program.Unit(); from != b.Unit {
		scale, ok := scales[[2]string{from, b.Unit}]
		if !ok {
			return 0, fmt.Errorf("%s is measured in %s, not in %s", b.Measure.Program, from, b.Unit)
		}
		v *= scale
	}
	return v, nil
}

// scales convert the units of programs to those of figures.
var scales = map[[2]string]float64{{"Gb/s", "MB/s"}: 125, {"µs", "us"}: 1, {"1/s", "M/s"}: 1e-6}

// program returns the program over verbs that m.Program names, with its settings.
func program(m *nics.BaseMeasure) (perf.Program, error) {
	const roundTrips = 250
	stream := func(op verbs.WROpcode, bothWays bool) perf.Program {
		// Posts requests for 100 µs and, for long messages, the time of one message at 4 GB/s.
		d := 100*time.Microsecond + time.Duration(m.Bytes)/4
		return perf.Program{Stream: &perf.Stream{Op: op, Bytes: m.Bytes, Duration: d, Load: perf.Load{QPs: m.QPs, BothWays: bothWays}}}
	}
	switch m.Program {
	case "write-latency":
		return perf.Program{Latency: &perf.Latency{Op: verbs.OpRDMAWrite, Bytes: m.Bytes, Load: perf.Load{Iterations: roundTrips}}}, nil
	case "send-latency":
		return perf.Program{Latency: &perf.Latency{Op: verbs.OpSend, Bytes: m.Bytes, Load: perf.Load{Iterations: roundTrips}}}, nil
	case "write":
		return stream(verbs.OpRDMAWrite, false), nil
	case "write-both-ways":
		return stream(verbs.OpRDMAWrite, true), nil
	case "read":
		return stream(verbs.OpRDMARead, false), nil
	case "send":
		return stream(verbs.OpSend, false), nil
	case "rate":
		return perf.Program{Rate: &perf.Rate{Bytes: m.Bytes, QPs: m.QPs, Duration: 200 * time.Microsecond}}, nil
	}
	return perf.Program{}, fmt.Errorf("no program is called %q", m.Program)
}

// runSides calls run for both sides of a pair of processes, on two hosts of a simulation.
func runSides(f mpihost.Fabric, run func(s *perf.Side) error) error {
	service, err := perflab.ServiceOf(f.Provider, "")
	if err != nil {
		return err
	}
	const pairs = 1
	return perflab.InPairs(f, service, pairs, func(_ int, s *perf.Side) error { return run(s) })
}

// runWorkload runs the workload of package work that m names on two simulated MPI ranks, and
// returns its latency or bandwidth. If m.MinusDesign is set, it subtracts the figure of the same
// workload with that design of connections.
func runWorkload(f mpihost.Fabric, m *nics.BaseMeasure) (value float64, err error) {
	wl, err := work.Find(m.Workload)
	if err != nil {
		return 0, err
	}
	if m.MinusDesign != "" {
		rest := *m
		rest.MinusDesign, rest.Design = "", m.MinusDesign
		less, err := runWorkload(f, &rest)
		if err != nil {
			return 0, err
		}
		defer func() { value -= less }()
	}
	o := mpi.Options{Carrier: carrier.Config{Design: carrier.Design(cmp.Or(m.Design, string(carrier.SRQ)))}}
	o.P2P.EagerLimit = m.EagerBytes
	o.Carrier.PacketSize = max(m.EagerBytes, minPacket) + packetOverhead
	o.Carrier.Ring.SlotSize = o.Carrier.PacketSize
	if m.RPUT {
		o.P2P.Protocol = p2p.RPUT
	}
	want := "latency"
	if m.Bandwidth || m.Workload == "bothway" {
		want = "bandwidth"
	}
	_, err = mpihost.InWorld(f, func(e *transport.Env) error {
		return mpi.Run(e, o, func(w *mpi.World) error {
			r, err := wl.Run(w, work.Params{Bytes: m.Bytes, Iterations: cmp.Or(m.Iterations, 4)})
			if w.Rank() != 0 || err != nil {
				return err
			}
			for _, figure := range r.Figures {
				if strings.HasPrefix(figure.Name, want) {
					value = figure.Value
					return nil
				}
			}
			return fmt.Errorf("%s has no figure %q", m.Workload, want)
		})
	})
	return value, err
}

// Packets have room for eager messages and their headers.
const minPacket, packetOverhead = 8 << 10, 256
