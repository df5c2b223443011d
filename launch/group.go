package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Group is a set of running ranks.
type Group struct {
	opts       Options
	guard      *guard
	dispatcher *eventDispatcher
	members    []*member      // of the ranks on this host, by rank
	first      int            // the rank of members[0]
	size       int            // number of ranks on all hosts
	proxy      *Proxy         // connects the ranks with those of other hosts; nil if there are none
	running    sync.WaitGroup // ranks
	stopTasks  sync.WaitGroup // goroutines started by Stop
	done       chan struct{}  // closed when all ranks have ended and all events are delivered

	mu           sync.Mutex
	barriersDone uint64
	barrierWaits bool  // the ranks of this host have entered a barrier, those of other hosts have not
	cause        error // why the group was stopped early
	stopping     bool
}

// Start starts a process for every spec, or none if one cannot be started. The group stops when a
// rank fails (see Options.KeepGoing), when ctx is cancelled, or by Stop. The caller must call Wait.
func Start(ctx context.Context, specs []Spec, opts Options) (*Group, error) {
	return start(ctx, specs, opts, &Group{size: len(specs)})
}

// start starts the ranks of g, in which size and, if there are ranks on other hosts, first and proxy
// are set.
func start(ctx context.Context, specs []Spec, opts Options, g *Group) (*Group, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	if err := checkSpecs(specs, g.first); err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("launch: cancelled before the start: %w", err)
	}
	g.opts, g.done, g.members = opts, make(chan struct{}), make([]*member, len(specs))
	if g.guard, err = startGuard(); err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	g.dispatcher = newEventDispatcher(opts)
	for _, s := range specs {
		g.members[s.Rank-g.first] = newMember(g, s)
	}
	if err := g.startAll(ctx, specs); err != nil {
		g.dispatcher.close()
		g.guard.stop()
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
	unregister := context.AfterFunc(ctx, func() {
		what := "cancelled"
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			what = "timed out"
		}
		g.Stop(fmt.Errorf("%s: %w", what, context.Cause(ctx)))
	})
	go func() {
		g.running.Wait()
		unregister()
		close(quit)
		<-supervised
		g.close()
	}()
	return g, nil
}

// close releases the resources of a group whose ranks have all ended.
func (g *Group) close() {
	g.mu.Lock()
	g.stopping = true // disables Stop
	g.mu.Unlock()
	g.stopTasks.Wait()
	g.guard.stop()
	g.dispatcher.close()
	close(g.done)
}

// startAll starts all processes; if one fails, it kills those that run.
func (g *Group) startAll(ctx context.Context, specs []Spec) error {
	for i, s := range specs {
		err := context.Cause(ctx)
		if err != nil {
			err = fmt.Errorf("cancelled: %w", err)
		} else {
			err = g.members[s.Rank-g.first].start()
		}
		if err == nil {
			continue
		}
		for _, s := range specs[:i] {
			g.members[s.Rank-g.first].killAndClose()
		}
		return fmt.Errorf("start %s: %w", s.name(), err)
	}
	return nil
}

// Wait waits until every rank has ended and returns the outcomes by rank. The error is the cause of
// the group's stop, or else the *RankError of the first rank that failed; it is nil if the group
// was not stopped and every rank is Finished or Killed.
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

// Done returns a channel that is closed when Wait does not block.
func (g *Group) Done() <-chan struct{} { return g.done }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.size }

// member returns the member with a rank, or an error if there is no such rank on this host.
func (g *Group) member(rank int) (*member, error) {
	here := rankRange{g.first, len(g.members)}
	switch {
	case here.contains(rank):
		return g.members[rank-g.first], nil
	case rank < 0 || rank >= g.size:
		return nil, fmt.Errorf("rank %d: there are %d ranks", rank, g.size)
	}
	return nil, fmt.Errorf("rank %d is on another host", rank)
}

// recordFailure makes the first failed rank the cause of the group's error, and stops
// the group unless Options.KeepGoing is set.
func (g *Group) recordFailure(m *member, s State, why string) {
	err := &RankError{Rank: m.spec.Rank, Host: m.spec.Host, State: s, Text: why}
	if !g.opts.KeepGoing {
		g.Stop(err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cause = cmp.Or(g.cause, error(err))
}

// killAndClose kills a started process before run has been called.
func (m *member) killAndClose() {
	_ = m.proc.signalGroup(unix.SIGKILL)
	<-m.proc.done
	m.g.guard.remove(m.proc.pid)
	m.closeFiles()
}
