package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Group is a set of running ranks.
type Group struct {
	opts    Options
	guard   *guard
	teller  *teller
	members []*member      // by rank
	ended   sync.WaitGroup // of the ranks
	ender   sync.WaitGroup // of what end started
	done    chan struct{}  // closed when all has ended and been told

	mu       sync.Mutex
	released uint64 // barriers that are complete
	cause    error  // why the group was ended before its time
	ending   bool
	asked    uint64 // number of the last dump or order
}

// Start starts a process for every spec and returns when all of them run. If one
// cannot be started, those that were are killed. The group ends when all ranks
// have ended, when one fails (see Options.KeepGoing), when ctx is cancelled, or by
// Stop. Whoever started a group must Wait for it.
func Start(ctx context.Context, specs []Spec, opts Options) (*Group, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	if err := checkSpecs(specs); err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("launch: cancelled before the start: %w", err)
	}
	g := &Group{opts: opts, done: make(chan struct{}), members: make([]*member, len(specs))}
	if g.guard, err = startGuard(); err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	g.teller = newTeller(opts)
	for _, s := range specs {
		g.members[s.Rank] = newMember(g, s)
	}
	if err := g.startAll(ctx, specs); err != nil {
		g.teller.close()
		g.guard.dismiss()
		return nil, fmt.Errorf("launch: %w", err)
	}
	for _, m := range g.members {
		m.run()
	}
	quit := make(chan struct{})
	supervised := make(chan struct{})
	go func() {
		defer close(supervised)
		g.supervise(quit)
	}()
	forget := context.AfterFunc(ctx, func() {
		what := "cancelled"
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			what = "timed out"
		}
		g.end(fmt.Errorf("%s: %w", what, context.Cause(ctx)))
	})
	go func() {
		g.ended.Wait()
		forget()
		close(quit)
		<-supervised
		g.finish()
	}()
	return g, nil
}

// finish closes a group whose ranks have all ended.
func (g *Group) finish() {
	g.mu.Lock()
	g.ending = true // there is nothing left to end
	g.mu.Unlock()
	g.ender.Wait()
	g.guard.dismiss()
	g.teller.close()
	close(g.done)
}

// startAll starts the processes, or none.
func (g *Group) startAll(ctx context.Context, specs []Spec) error {
	for i, s := range specs {
		err := context.Cause(ctx)
		if err != nil {
			err = fmt.Errorf("cancelled: %w", err)
		} else {
			err = g.members[s.Rank].start()
		}
		if err == nil {
			continue
		}
		for _, s := range specs[:i] {
			g.members[s.Rank].abandon()
		}
		return fmt.Errorf("start %s: %w", rankName(s.Rank, s.Host), err)
	}
	return nil
}

// Wait returns when every rank has ended, with what became of each, by rank. The
// error is nil if each did its work or was killed on request; otherwise it is
// what ended the group, or a *RankError of the first rank that failed.
func (g *Group) Wait() ([]Outcome, error) {
	<-g.done
	outcomes := make([]Outcome, len(g.members))
	for i, m := range g.members {
		outcomes[i] = m.outcome
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return outcomes, g.cause
}

// Done is closed when Wait would return at once.
func (g *Group) Done() <-chan struct{} { return g.done }

// Size is how many ranks the group has.
func (g *Group) Size() int { return len(g.members) }

// PID is the process of a rank, whether or not it still runs; 0 if there is no
// such rank.
func (g *Group) PID(rank int) int {
	m, err := g.member(rank)
	if err != nil {
		return 0
	}
	return m.proc.pid
}

func (g *Group) member(rank int) (*member, error) {
	if rank < 0 || rank >= len(g.members) {
		return nil, fmt.Errorf("rank %d: there are %d ranks", rank, len(g.members))
	}
	return g.members[rank], nil
}

// blame makes the end of a rank the reason of the group's, if it is the first,
// and ends the group unless that is to keep going.
func (g *Group) blame(m *member, s State, why string) {
	err := &RankError{Rank: m.spec.Rank, Host: m.spec.Host, State: s, Text: why}
	if !g.opts.KeepGoing {
		g.end(err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause == nil {
		g.cause = err
	}
}

// streams makes the pipes that a rank writes to.
func streams() (outR, outW, errR, errW *os.File, err error) {
	if outR, outW, err = os.Pipe(); err != nil {
		return nil, nil, nil, nil, err
	}
	if errR, errW, err = os.Pipe(); err != nil {
		outR.Close()
		outW.Close()
		return nil, nil, nil, nil, err
	}
	return outR, outW, errR, errW, nil
}

// abandon ends a process that runs but was never spoken to.
func (m *member) abandon() {
	_ = m.proc.signal(unix.SIGKILL)
	<-m.proc.done
	m.g.guard.remove(m.proc.pid)
	m.closeFiles()
}
