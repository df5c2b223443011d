package nslab

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/internal/cputime"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/launch/rank"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// rankJob is what a rank's process is told.
type rankJob struct {
	Name     string        `json:"name"`     // the scenario's
	Scenario string        `json:"scenario"` // its text
	Seed     uint64        `json:"seed"`
	Host     string        `json:"host"`
	NICs     []rankNIC     `json:"nics"`
	Quirks   []string      `json:"quirks,omitempty"`
	Patience time.Duration `json:"patience"`
	// Single has packets handed to the kernel one by one: netem takes a
	// super-packet for one packet, and would lose all of it or nothing.
	Single bool `json:"single,omitempty"`
	// Capture is the file to write packets to; empty for none.
	Capture string `json:"capture,omitempty"`
	Comment string `json:"comment,omitempty"`
}

// rankNIC is a NIC to open.
type rankNIC struct {
	Name string     `json:"name"`
	Addr netip.Addr `json:"addr"`
	Rail int        `json:"rail"`
	// RateBps is that of its cable; 0 if it has none.
	RateBps uint64 `json:"rate_bps,omitempty"`
}

// readyMark is what a rank marks when its NICs are open and it waits for the
// order to begin.
const readyMark = "ready"

// breakOrder tells a rank to move its queue pairs to Error.
const breakOrder = "break"

// RankMain is what the process of a rank does: it opens its NICs, runs its
// program, and reports. It returns an error only if there is nobody to report
// to.
func RankMain() error {
	conn, err := rank.Join()
	if err != nil {
		return err
	}
	var uncaptured error
	rep, failed := runRank(conn, &uncaptured)
	out := rankOutcome{Report: rep}
	if failed != nil {
		out.Error, out.Timeout = failed.Error(), workload.IsTimeout(failed)
	}
	if u, ok := cputime.Self(); ok {
		out.Usage = &u
	}
	if uncaptured != nil {
		out.Capture = uncaptured.Error()
	}
	text, err := json.Marshal(out)
	if err == nil {
		err = conn.Report(text)
	}
	return errors.Join(err, conn.Close(failed))
}

// rankOutcome is what a rank reports at its end.
type rankOutcome struct {
	Report *workload.Report `json:"report,omitempty"`
	Error  string           `json:"error,omitempty"`
	// Timeout says that the error is a timeout: see workload.IsTimeout.
	Timeout bool `json:"timeout,omitempty"`
	// Usage is how the rank's process was scheduled; nil if the kernel does not tell.
	Usage *cputime.Usage `json:"usage,omitempty"`
	// Capture is why there is no capture, though one was wanted. It is no fault of
	// the program's.
	Capture string `json:"capture,omitempty"`
}

// runRank runs the program of a rank; uncaptured is why there is no capture.
func runRank(conn *rank.Conn, uncaptured *error) (rep *workload.Report, err error) {
	var job rankJob
	if err := json.Unmarshal(conn.Job(), &job); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	s, err := scenarios.Parse(job.Name+".yaml", []byte(job.Scenario))
	if err != nil {
		return nil, err
	}
	capture, err := newCapture(&job)
	if err != nil {
		return nil, err
	}
	defer func() { *uncaptured = capture.close() }() // when no NIC uses it any more
	nics, done, err := openNICs(s, &job, capture)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	begin, orders := make(chan time.Duration, 1), new(orders)
	conn.OnCommand(func(order string) error { return orders.obey(order, begin) })
	if err := conn.Mark(readyMark); err != nil {
		return nil, err
	}
	program, err := workload.New(s.Workload, &workload.Rank{
		Rank: conn.Rank(), Size: conn.Size(), Seed: job.Seed, Proc: newClock(<-begin), NICs: nics,
		Control: &control{conn}, Concurrent: true, StallTimeout: job.Patience,
	})
	if err != nil {
		return nil, err
	}
	conn.OnDump(program.Status)
	orders.program.Store(&program)
	return program.Run()
}

// orders are what a rank is told to do. They come on a goroutine of their own.
type orders struct {
	program atomic.Pointer[workload.Program] // nil before it has begun
}

func (o *orders) obey(order string, begin chan<- time.Duration) error {
	if strings.HasPrefix(order, startOrder) {
		epoch, err := parseStart(order)
		if err == nil {
			begin <- epoch
		}
		return err
	}
	p := o.program.Load()
	if p == nil {
		return fmt.Errorf("cannot %s before it has begun", order)
	}
	b, ok := (*p).(workload.Breaker)
	if order != breakOrder || !ok {
		return fmt.Errorf("the workload cannot %s", order)
	}
	return b.Break()
}

// openNICs opens the devices of a host. done closes them.
func openNICs(s *scenarios.Scenario, job *rankJob, capture *capture) (opened []workload.NIC, done func() error, err error) {
	var closers []func() error
	closeAll := func() error {
		errs := make([]error, 0, len(closers))
		for i := range closers {
			errs = append(errs, closers[len(closers)-1-i]())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll())
		}
	}()
	open, err := lab.NICs(s, job.Host, job.Quirks...)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range job.NICs {
		at := nics.Place{Name: job.Host + "/" + n.Name, Addr: n.Addr, LineRateBps: n.RateBps, Single: job.Single}
		if capture != nil {
			at.Capture = capture.packets
		}
		dev, err := open.OnSockets(at)
		if err != nil {
			return nil, nil, err
		}
		closers = append(closers, dev.Close)
		opened = append(opened, workload.NIC{Device: dev, Addr: n.Addr, Rail: n.Rail})
	}
	return opened, closeAll, nil
}
