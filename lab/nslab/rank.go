package nslab

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/internal/process"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

// rankJob is the input of a rank's process.
type rankJob struct {
	Name         string        `json:"name"`     // of the scenario
	Scenario     string        `json:"scenario"` // the scenario's text
	Seed         uint64        `json:"seed"`
	Host         string        `json:"host"`
	NICs         []rankNIC     `json:"nics"`
	Defects      []string      `json:"defects,omitempty"`
	StallTimeout time.Duration `json:"patience"` // see workload.Rank
	// NoGSO disables UDP segmentation offload: netem would drop a GSO packet as a whole.
	NoGSO bool `json:"single,omitempty"`
	// Capture is the capture file; empty for none.
	Capture string `json:"capture,omitempty"`
	Comment string `json:"comment,omitempty"`
}

type rankNIC struct {
	Name string     `json:"name"`
	Addr netip.Addr `json:"addr"`
	Rail int        `json:"rail"`
	// RateBps is the rate of its cable; 0 if unlimited.
	RateBps uint64 `json:"rate_bps,omitempty"`
	// CableFD is the descriptor of its cable in shared memory; 0 for none.
	CableFD int `json:"cable_fd,omitempty"`
}

// readyMark is the mark of a rank that has opened its NICs and waits for the start command.
const readyMark = "ready"

// breakCommand makes a rank move its queue pairs to Error.
const breakCommand = "break"

// RankMain is the main function of a rank process: it opens the NICs, runs the workload of the
// scenario, and reports to the launcher. It returns an error only if it cannot report.
func RankMain() error {
	conn, err := launch.Join()
	if err != nil {
		return err
	}
	var captureErr error
	rep, runErr := runRank(conn, &captureErr)
	out := rankOutcome{Report: rep}
	if runErr != nil {
		out.Error, out.Timeout = runErr.Error(), workload.IsTimeout(runErr)
	}
	if u, ok := process.UsedCPU(); ok {
		out.Usage = &u
	}
	if captureErr != nil {
		out.CaptureError = captureErr.Error()
	}
	text, err := json.Marshal(out)
	if err == nil {
		err = conn.Report(text)
	}
	return errors.Join(err, conn.Close(runErr))
}

// rankOutcome is the final report of a rank.
type rankOutcome struct {
	Report *workload.Report `json:"report,omitempty"`
	Error  string           `json:"error,omitempty"`
	// Timeout is true if Error is a timeout: see workload.IsTimeout.
	Timeout bool `json:"timeout,omitempty"`
	// Usage is the CPU time of the process; nil if unknown.
	Usage *process.CPUUsage `json:"usage,omitempty"`
	// CaptureError is the error of the capture file, which is not an error of the program.
	CaptureError string `json:"captureError,omitempty"`
}

// runRank opens the NICs of a rank, waits for the start command, and runs the workload. It
// sets *captureErr if the capture fails, which is not an error of the rank.
func runRank(conn *launch.Conn, captureErr *error) (rep *workload.Report, err error) {
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
	defer func() { *captureErr = closeCapture(capture.file, capture.packets) }() // after the NICs are closed
	nics, err := openNICs(s, &job, capture.packets)
	defer func() {
		for _, nic := range slices.Backward(nics) {
			err = errors.Join(err, nic.Device.Close())
		}
	}()
	if err != nil {
		return nil, err
	}
	start, handler := make(chan time.Duration, 1), new(commandHandler)
	conn.OnCommand(func(command string) error { return handler.handle(command, start) })
	if err := conn.Mark(readyMark); err != nil {
		return nil, err
	}
	epoch := <-start // wait for the start command, which has time 0 of the scenario in CLOCK_MONOTONIC
	proc := clock{epoch: time.Now().Add(epoch - monotonic())}
	program, err := workload.New(s.Workload, &workload.Rank{
		Rank: conn.Rank(), Size: conn.Size(), Seed: job.Seed, Proc: proc, NICs: nics,
		Control: &control{conn}, Concurrent: true, StallTimeout: job.StallTimeout,
		Go: func(_ string, task func(verbs.Proc)) { go task(proc) },
	})
	if err != nil {
		return nil, err
	}
	conn.OnDump(program.Status)
	handler.program.Store(&program)
	return program.Run()
}

// commandHandler handles the launcher's commands, on a separate goroutine.
type commandHandler struct {
	program atomic.Pointer[workload.Program] // nil before the start
}

// handle executes a command of the lab process: it sends time 0 of a start command to start,
// or moves the queue pairs of the running workload to Error.
func (h *commandHandler) handle(command string, start chan<- time.Duration) error {
	if epoch, ok := strings.CutPrefix(command, startCommand); ok {
		n, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("command %q: %w", command, err)
		}
		start <- time.Duration(n)
		return nil
	}
	p := h.program.Load()
	if p == nil {
		return fmt.Errorf("cannot %s before the start", command)
	}
	b, ok := (*p).(workload.Breaker)
	if command != breakCommand || !ok {
		return fmt.Errorf("the workload cannot %s", command)
	}
	return b.Break()
}

// openNICs opens the NICs of a host with the scenario's settings and the job's defects. After an
// error it returns those that are open.
func openNICs(s *scenarios.Scenario, job *rankJob, capture *pcaplink.Capture) (opened []workload.NIC, err error) {
	provider, err := lab.NICs(s, job.Host, job.Defects...)
	if err != nil {
		return nil, err
	}
	for _, n := range job.NICs {
		dev, err := provider.OnSockets(nics.NICConfig{
			Name: job.Host + "/" + n.Name, Addr: n.Addr, LineRateBps: n.RateBps, NoGSO: job.NoGSO, Capture: capture,
			Cable: nics.InheritedCable(n.CableFD),
		})
		if err != nil {
			return opened, err
		}
		opened = append(opened, workload.NIC{Device: dev, Addr: n.Addr, Rail: n.Rail})
	}
	return opened, nil
}

// startCommand starts a rank with time 0 of the scenario on CLOCK_MONOTONIC: "start 1234567890".
const startCommand = "start "

// clock is a verbs.Proc in real time, with the same time 0 for all ranks.
type clock struct{ epoch time.Time }

// Now returns the time of the scenario.
func (c clock) Now() time.Duration { return time.Since(c.epoch) }

// Sleep implements verbs.Proc.
func (clock) Sleep(d time.Duration) { time.Sleep(d) }

// spinTime is how long Compute spins at the end, to cover late timers.
const spinTime = 100 * time.Microsecond

// Compute simulates a computation of duration d. It sleeps for most of that time, because the hosts
// share the CPUs of this machine, unlike real hosts. It spins at the end, because timers are late.
func (clock) Compute(d time.Duration) {
	began := time.Now()
	if d > spinTime {
		time.Sleep(d - spinTime)
	}
	for time.Since(began) < d {
	}
}

// control is the workload.Control of a rank, over its connection to the launcher.
type control struct{ conn *launch.Conn }

func (c *control) Send(to int, msg []byte) error { return c.wrapErr(c.conn.Send(to, msg)) }

func (c *control) Recv(from int, timeout time.Duration) ([]byte, error) {
	msg, err := c.conn.Recv(from, timeout)
	return msg, c.wrapErr(err)
}

func (c *control) Barrier(timeout time.Duration) error { return c.wrapErr(c.conn.Barrier(timeout)) }
func (c *control) Gone(rank int) bool                  { return c.conn.HasEnded(rank) }
func (c *control) Mark(what string)                    { c.conn.Mark(what) }
func (c *control) Sample(s workload.Sample)            { c.conn.Sample(s) }

// wrapErr joins an error of the launcher with the error that workloads test for:
// workload.ErrGone or verbs.ErrTimeout.
func (c *control) wrapErr(err error) error {
	switch {
	case errors.Is(err, launch.ErrEnded):
		return errors.Join(workload.ErrGone, err)
	case errors.Is(err, launch.ErrTimeout):
		return errors.Join(verbs.ErrTimeout, err)
	}
	return err
}
