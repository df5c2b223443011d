package explore

// maxQueued limits the alternatives that wait, and with them the memory.
const maxQueued = 1 << 22

// queue has the alternatives of runs that have ended, which are runs of their own.
type queue struct {
	parents      []*parent // in the order of their runs
	alternatives int       // of all parents
	dropped      int       // alternatives that were not added
}

// parent is a run with choices that could have been other than 0, after its last other choice.
type parent struct {
	deviation *deviation
	depth     int
	branches  []branch
	next      int // pick of branches[0] that is next
}

// branch is a choice among of alternatives.
type branch struct {
	step int32
	of   int32
}

// deviation is a choice other than 0, and those before it.
type deviation struct {
	before       *deviation
	step, picked int
}

// add adds the alternatives of a run that has ended. started is the number of runs that have begun.
func (q *queue) add(w *runWorker, o *Options, started int) {
	p := &parent{next: 1}
	from := 0
	if d, ok := w.strategy.(*deviations); ok {
		p.deviation, p.depth, from = d.last, len(d.all), d.last.step+1
	}
	if o.Depth > 0 && p.depth >= o.Depth {
		return
	}
	until := len(w.path)
	if o.MaxDepth > 0 {
		until = min(until, o.MaxDepth)
	}
	limit := maxQueued
	if o.MaxRuns > 0 {
		limit = min(limit, o.MaxRuns-started+1)
	}
	added := 0
	for step := from; step < until; step++ {
		if of := w.path[step].Of; of > 1 {
			if q.dropped > 0 || q.alternatives+added >= limit {
				q.dropped += of - 1
				continue
			}
			p.branches = append(p.branches, branch{int32(step), int32(of)})
			added += of - 1
		}
	}
	if added > 0 {
		q.alternatives += added
		q.parents = append(q.parents, p)
	}
}

// take removes the first alternative.
func (q *queue) take() *deviations {
	p := q.parents[0]
	b := p.branches[0]
	d := &deviations{last: &deviation{p.deviation, int(b.step), p.next}, all: make([]*deviation, p.depth+1)}
	for i, e := p.depth, d.last; e != nil; i, e = i-1, e.before {
		d.all[i] = e
	}
	q.alternatives--
	if p.next++; p.next == int(b.of) {
		p.next, p.branches = 1, p.branches[1:]
	}
	if len(p.branches) == 0 {
		q.parents[0] = nil
		q.parents = q.parents[1:]
	}
	return d
}

// deviations is a strategy that picks 0, except at some steps.
type deviations struct {
	last *deviation
	all  []*deviation // by step
	done int          // of all
}

func (d *deviations) pick(step int, _ string, n int, _ []uint32) int {
	if d.done == len(d.all) || d.all[d.done].step != step {
		return 0
	}
	picked := d.all[d.done].picked
	d.done++
	return min(picked, n-1)
}
