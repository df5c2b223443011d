package mpihost

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/verbs"
)

// worldRank is a rank of a world.
type worldRank struct {
	w     *World
	rank  int
	proc  *sim.Proc
	tasks []*sim.Proc // what it runs beside itself, and has not ended
	nics  []*owned
	ended bool
}

// addRanks adds a coroutine for every rank.
func (w *World) addRanks(run func(*env.Env) error) {
	w.hub = sim.NewHub(w.sim, w.f.Ranks, env.ErrGone)
	w.out.Ranks = make([]RankOutcome, w.f.Ranks)
	w.ranks = make([]*worldRank, w.f.Ranks)
	for i := range w.ranks {
		r := &worldRank{w: w, rank: i}
		w.ranks[i] = r
		r.proc = w.sim.Go(fmt.Sprintf("rank %d on host%d", i, w.nodes[i]), func(p *sim.Proc) error {
			w.out.Ranks[i].Err = run(r.env(p))
			r.end()
			return nil // the others go on
		})
	}
}

// env is what the rank is given.
func (r *worldRank) env(p *sim.Proc) *env.Env {
	w, h := r.w, &r.w.hosts[r.w.nodes[r.rank]]
	e := &env.Env{
		Rank: r.rank, Size: w.f.Ranks, Nodes: w.nodes, Seed: w.f.Seed, Proc: p,
		Control: &control{w.hub.Endpoint(r.rank), w.abort}, Shared: h.shared, Go: r.beside,
	}
	if costs := w.f.Costs; costs != nil {
		own := *costs
		own.Spend = func(d time.Duration) {
			if p := w.sim.Current(); p != nil && d > 0 { // the rank, or a task of its
				p.Compute(d)
			}
		}
		e.Costs = &own
	}
	for k, d := range h.devices {
		o := &owned{Context: d}
		r.nics = append(r.nics, o)
		e.NICs = append(e.NICs, env.NIC{Device: o, Addr: h.ports[k].Addrs()[0]})
	}
	return e
}

// beside is Env.Go.
func (r *worldRank) beside(what string, f func(verbs.Proc)) {
	if r.ended {
		return
	}
	var task *sim.Proc
	task = r.w.sim.Go(fmt.Sprintf("rank %d: %s", r.rank, what), func(p *sim.Proc) error {
		f(p)
		if i := slices.Index(r.tasks, task); i >= 0 {
			r.tasks = slices.Delete(r.tasks, i, i+1)
		}
		return nil
	})
	r.tasks = append(r.tasks, task)
}

// end lets go of all that is the rank's, in whatever way it has ended. What it runs
// beside itself ends with it, as with a process.
func (r *worldRank) end() {
	if r.ended {
		return
	}
	r.ended = true
	r.w.out.Ranks[r.rank].Ended = time.Duration(r.w.sim.Now())
	r.w.hub.End(r.rank)
	// In an event of its own: it may be one of those that calls, and closing in a
	// program would cost it time.
	r.w.sim.AtFunc(r.w.sim.Now(), func() { r.w.problem = errors.Join(r.w.problem, r.release()) })
}

// release ends what runs and closes what is open.
func (r *worldRank) release() error {
	err := r.proc.Kill() // of one that has returned there is nothing left to end
	for _, t := range r.tasks {
		err = errors.Join(err, t.Kill())
	}
	r.tasks = nil
	for _, o := range r.nics {
		o.release()
	}
	return err
}

// Kill ends a rank as a kill -9 of its process would: in the middle of what it is at,
// without a word to anybody. The others learn from their Control that it is gone, and
// from their NICs that nobody answers. It is done at this time of the world's, when
// whoever calls has let go. A rank that has ended is left as it is.
func (w *World) Kill(rank int) {
	w.sim.AtFunc(w.sim.Now(), func() { w.kill(w.ranks[rank]) })
}

func (w *World) kill(r *worldRank) {
	if r.ended {
		return
	}
	w.out.Ranks[r.rank].Killed = true
	r.end()
	w.problem = errors.Join(w.problem, r.release())
}

// abort ends all ranks, the one that says so first: it may hold what the deferred
// calls of its own tasks need.
func (w *World) abort(rank, code int, why string) {
	if w.out.Aborted != nil {
		return
	}
	w.out.Aborted = &AbortError{Rank: rank, Code: code, Why: why}
	w.sim.AtFunc(w.sim.Now(), func() {
		w.kill(w.ranks[rank])
		for _, r := range w.ranks {
			w.kill(r)
		}
	})
}
