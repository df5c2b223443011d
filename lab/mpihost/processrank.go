package mpihost

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// runRank opens the NICs of this process's rank, and runs it.
func (p *Process) runRank(run func(*transport.Env) error) (err error) {
	f, provider, err := p.job.fabric().withDefaults()
	if err != nil {
		return err
	}
	e := &transport.Env{
		Rank: p.conn.Rank(), Size: p.conn.Size(), Nodes: f.nodes(), Seed: f.Seed,
		Proc: newClock(p.job.Rank.StartTime), Control: &launcherControl{p.conn}, Concurrent: true,
	}
	if e.Size != f.Ranks {
		return fmt.Errorf("the launcher has %d ranks, and its job has %d", e.Size, f.Ranks)
	}
	if cpu := p.job.Rank.CPU; cpu > 0 {
		if err := bindToCPU(cpu - 1); err != nil {
			return err
		}
	}
	e.Go = func(_ string, f func(verbs.Proc)) { go f(e.Proc) }
	if fd := p.job.Rank.SharedFD; fd > 0 {
		shared, err := openSharedMemory(fd)
		if err != nil {
			return err
		}
		e.Shared = shared
	}
	opener, err := provider.NewOpener(f.Setup)
	if err != nil {
		return err
	}
	for _, n := range p.job.Rank.NICs {
		d, err := opener.OnSockets(nics.NICConfig{Name: fmt.Sprintf("%s/%s", p.conn.Host(), n.Name), Addr: n.Addr})
		if err != nil {
			return fmt.Errorf("NIC %s at %v: %w", n.Name, n.Addr, err)
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		e.NICs = append(e.NICs, transport.NIC{Device: d, Addr: n.Addr})
	}
	return run(e)
}

// launcherControl is transport.Control over the connection to the launcher.
type launcherControl struct{ conn *launch.Conn }

var _ transport.Control = (*launcherControl)(nil)

// Send implements transport.Control.
func (c *launcherControl) Send(to int, msg []byte) error { return wrapErr(c.conn.Send(to, msg)) }

// Recv implements transport.Control.
func (c *launcherControl) Recv(from int, timeout time.Duration) ([]byte, error) {
	msg, err := c.conn.Recv(from, timeout)
	return msg, wrapErr(err)
}

// Barrier implements transport.Control.
func (c *launcherControl) Barrier(timeout time.Duration) error {
	return wrapErr(c.conn.Barrier(timeout))
}

// Gone implements transport.Control.
func (c *launcherControl) Gone(rank int) bool { return c.conn.HasEnded(rank) }

// abortMark is the prefix of the mark by which a rank asks the launcher to stop all
// ranks, also with KeepGoing.
const abortMark = "mpi: abort: "

// ParseAbort parses the mark of a rank that aborts; nil for other marks.
func ParseAbort(mark string) *AbortError {
	text, ok := strings.CutPrefix(mark, abortMark)
	e := new(AbortError)
	if !ok || json.Unmarshal([]byte(text), e) != nil {
		return nil
	}
	return e
}

// maxReason bounds the reason in a mark, whose length is limited.
const maxReason = 512

// Abort implements transport.Control. It does not return.
func (c *launcherControl) Abort(code int, why string) {
	err := &AbortError{Rank: c.conn.Rank(), Code: code, Reason: why}
	err.Reason = why[:min(len(why), maxReason)]
	if text, jerr := json.Marshal(err); jerr == nil {
		_ = c.conn.Mark(abortMark + string(text)) // without a launcher there are no other ranks
	}
	_ = c.conn.Close(err)
	os.Exit(err.ExitCode())
}

// wrapErr adds the errors of package env that ranks test for.
func wrapErr(err error) error {
	switch {
	case errors.Is(err, launch.ErrEnded):
		return fmt.Errorf("%w (%w)", transport.ErrGone, err)
	case errors.Is(err, launch.ErrTimeout):
		return fmt.Errorf("%w (%w)", verbs.ErrTimeout, err)
	}
	return err
}

// clock is a verbs.Proc in real time, with the same time 0 for all ranks.
type clock struct{ began time.Time }

// newClock returns a clock with the launcher's time 0. It compares wall-clock times
// once, and uses the monotonic clock from then on.
func newClock(began time.Time) clock {
	now := time.Now()
	return clock{now.Add(-now.Round(0).Sub(began))}
}

// Now implements verbs.Proc.
func (c clock) Now() time.Duration { return time.Since(c.began) }

// Sleep implements verbs.Proc.
func (clock) Sleep(d time.Duration) { time.Sleep(d) }

// spinTime is how long Compute spins at the end, to cover late timers.
const spinTime = 100 * time.Microsecond

// Compute simulates a computation of duration d. It sleeps for most of it, because
// the ranks share the CPUs of this machine.
func (clock) Compute(d time.Duration) {
	began := time.Now()
	if d > spinTime {
		time.Sleep(d - spinTime)
	}
	for time.Since(began) < d {
	}
}
