package mpihost

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/launch/rank"
	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/verbs"
)

// asRank opens the NICs of the one rank that this process is, and runs it.
func (p *Process) asRank(run func(*env.Env) error) (err error) {
	f, provider, err := p.job.fabric().normal()
	if err != nil {
		return err
	}
	e := &env.Env{
		Rank: p.conn.Rank(), Size: p.conn.Size(), Nodes: f.nodes(), Seed: f.Seed,
		Proc: newClock(p.job.Rank.Began), Control: &channel{p.conn}, Concurrent: true,
	}
	if e.Size != f.Ranks {
		return fmt.Errorf("the launcher has %d ranks, and its job speaks of %d", e.Size, f.Ranks)
	}
	if cpu := p.job.Rank.CPU; cpu > 0 {
		if err := bind(cpu - 1); err != nil {
			return err
		}
	}
	e.Go = func(_ string, f func(verbs.Proc)) { go f(e.Proc) }
	if fd := p.job.Rank.Shared; fd > 0 {
		shared, err := openShared(fd)
		if err != nil {
			return err
		}
		e.Shared = shared
	}
	opener, err := provider.With(f.Setup)
	if err != nil {
		return err
	}
	for _, n := range p.job.Rank.NICs {
		d, err := opener.OnSockets(nics.Place{Name: fmt.Sprintf("%s/%s", p.conn.Host(), n.Name), Addr: n.Addr})
		if err != nil {
			return fmt.Errorf("NIC %s at %v: %w", n.Name, n.Addr, err)
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		e.NICs = append(e.NICs, env.NIC{Device: d, Addr: n.Addr})
	}
	return run(e)
}

// channel is env.Control over the connection to the launcher.
type channel struct{ conn *rank.Conn }

var _ env.Control = (*channel)(nil)

// Send implements env.Control.
func (c *channel) Send(to int, msg []byte) error { return own(c.conn.Send(to, msg)) }

// Recv implements env.Control.
func (c *channel) Recv(from int, timeout time.Duration) ([]byte, error) {
	msg, err := c.conn.Recv(from, timeout)
	return msg, own(err)
}

// Barrier implements env.Control.
func (c *channel) Barrier(timeout time.Duration) error { return own(c.conn.Barrier(timeout)) }

// Gone implements env.Control.
func (c *channel) Gone(rank int) bool { return c.conn.HasEnded(rank) }

// abortMark begins the mark by which a rank tells its launcher to end all others,
// though it may have been told to let them go on when one fails.
const abortMark = "mpi: abort: "

// ParseAbort reads a mark of a rank's; nil if it is another.
func ParseAbort(mark string) *AbortError {
	text, ok := strings.CutPrefix(mark, abortMark)
	e := new(AbortError)
	if !ok || json.Unmarshal([]byte(text), e) != nil {
		return nil
	}
	return e
}

// maxWhy is how much of the reason fits a mark, whatever becomes of it in JSON.
const maxWhy = 512

// Abort implements env.Control. It does not return.
func (c *channel) Abort(code int, why string) {
	err := &AbortError{Rank: c.conn.Rank(), Code: code, Why: why}
	err.Why = why[:min(len(why), maxWhy)]
	if text, jerr := json.Marshal(err); jerr == nil {
		_ = c.conn.Mark(abortMark + string(text)) // if nobody hears it, there is nobody to end
	}
	_ = c.conn.Close(err)
	os.Exit(err.ExitCode())
}

// own gives errors the names by which ranks know them.
func own(err error) error {
	switch {
	case errors.Is(err, rank.ErrRankEnded):
		return fmt.Errorf("%w (%w)", env.ErrGone, err)
	case errors.Is(err, rank.ErrTimeout):
		return fmt.Errorf("%w (%w)", verbs.ErrTimeout, err)
	}
	return err
}

// clock is a verbs.Proc in real time that all ranks of a run agree on.
type clock struct{ began time.Time }

// newClock counts from a moment of the launcher's. The two agree on the time of day,
// of which only the difference is used: from then on nobody sets this clock.
func newClock(began time.Time) clock {
	now := time.Now()
	return clock{now.Add(-now.Round(0).Sub(began))}
}

// Now implements verbs.Proc.
func (c clock) Now() time.Duration { return time.Since(c.began) }

// Sleep implements verbs.Proc.
func (clock) Sleep(d time.Duration) { time.Sleep(d) }

// awake is how much of a computation is spent on the processor: what a timer may be
// late by.
const awake = 100 * time.Microsecond

// Compute takes as long as a computation would, and sleeps for all but the last moment
// of it: many ranks share a few processors here, and would keep each other from them,
// which those that they stand for do not.
func (clock) Compute(d time.Duration) {
	began := time.Now()
	if d > awake {
		time.Sleep(d - awake)
	}
	for time.Since(began) < d {
	}
}
