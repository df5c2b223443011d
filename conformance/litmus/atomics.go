package litmus

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// How much is done: so many words and queue pairs on each side, so many atomics on
// each queue pair, of which so many are under way at a time.
const (
	words   = 3
	pairs   = 4
	atomics = 24
	depth   = 3
)

// judge runs the program over several paths, or over the plain one as often where the
// bench has no others.
func judge(b *conformance.Bench) error {
	return rig.Caught(func() {
		p := rig.NewPair(rig.New(b))
		s := newSides(p)
		rounds := b.Schedules(len(atomicPaths))
		for i := range rounds {
			b.Progress(i, rounds)
			path := atomicPaths[i%len(atomicPaths)]
			if !p.Shake(path) {
				path = conformance.Path{}
			}
			s.clear()
			history := s.play()
			b.Note("%d atomics, %d ppm of packets lost", len(history), path.LossPPM)
			if err := Check(history); err != nil {
				rig.End(err)
			}
		}
	})
}

// atomicPaths are what the network is like, by turns.
var atomicPaths = []conformance.Path{
	{},
	{Jitter: 10 * time.Microsecond},
	{LossPPM: 50_000},
	{LossPPM: 30_000, DuplicatePPM: 200_000, Jitter: 50 * time.Microsecond},
}

// side is a device: its words, and where results of its queue pairs come to.
type side struct {
	*rig.Rig
	words, results *rig.Memory
}

type sides struct {
	p     *rig.Pair
	hosts [2]*side
	ends  [][2]*rig.PairEnd
}

func newSides(p *rig.Pair) *sides {
	s := &sides{p: p}
	for i, r := range []*rig.Rig{p.Near, p.Far} {
		s.hosts[i] = &side{Rig: r, words: rig.PairMemory(r, 8*words), results: r.Memory(8*pairs*atomics, verbs.AccessLocalWrite)}
	}
	for range pairs {
		near, far := p.Link()
		s.ends = append(s.ends, [2]*rig.PairEnd{near, far})
	}
	return s
}

// clear sets all words to 0.
func (s *sides) clear() {
	for _, h := range s.hosts {
		h.words.Accept() // the device has finished what it is at
		clear(h.words.Buf)
		h.words.Accept() // by a verb, so that a device of another host sees it before its peers work on it
	}
}

// play has all queue pairs work at the same time, and returns what they did.
func (s *sides) play() (history []Atomic) {
	all := make([][]Atomic, 0, 2*pairs)
	tasks := make([]conformance.Task, 0, 2*pairs)
	for i := range pairs {
		for who := range s.hosts {
			k, plan := len(all), s.plan(who)
			all = append(all, nil)
			tasks = append(tasks, s.p.Near.Go(fmt.Sprintf("queue pair %d of host %d", i, who), func() error {
				return rig.Caught(func() { all[k] = s.work(i, who, plan) })
			}))
		}
	}
	for _, t := range tasks {
		if err := t.Wait(4 * s.p.Near.Patience()); err != nil {
			rig.End(err)
		}
	}
	for client, list := range all {
		for _, a := range list {
			a.Client = client
			history = append(history, a)
		}
	}
	return history
}

// step is what a queue pair is to do, and how long it waits before.
type step struct {
	Atomic
	pause time.Duration
}

// plan draws what a queue pair does. All draws are made before the tasks begin: which
// of these runs first must not matter to what is drawn.
func (s *sides) plan(who int) []step {
	rand := s.p.Near.Rand
	plan := make([]step, atomics)
	for i := range plan {
		a := Atomic{Word: (1-who)*words + rand.IntN(words)}
		switch rand.IntN(4) {
		case 0:
			a.Add = 0
		case 1:
			// Small numbers, so that what is compared with is often there.
			a.Swap, a.Compare, a.New = true, uint64(rand.IntN(6)), uint64(rand.IntN(6))
		default:
			a.Add = uint64(rand.IntN(3))
		}
		plan[i] = step{a, time.Duration(rand.IntN(5)) * time.Microsecond}
	}
	return plan
}

// work carries out a plan.
func (s *sides) work(i, who int, plan []step) []Atomic {
	e, me, other := s.ends[i][who], s.hosts[who], s.hosts[1-who]
	done := make([]Atomic, len(plan))
	finish := func() {
		wc := e.Wait()
		a := &done[wc.WRID]
		a.Return = e.Now()
		a.Old = binary.NativeEndian.Uint64(me.results.Buf[8*(i*atomics+int(wc.WRID)):])
	}
	for k, st := range plan {
		if k >= depth {
			finish()
		}
		e.Sleep(st.pause)
		wr := verbs.SendWR{
			WRID: uint64(k), Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled,
			SGL:    me.results.List(8*(i*atomics+k), 8),
			Remote: other.words.Remote(8 * (st.Word % words)), Atomic: verbs.Atomic{CompareAdd: st.Add},
		}
		if st.Swap {
			wr.Opcode, wr.Atomic = verbs.OpAtomicCmpAndSwp, verbs.Atomic{CompareAdd: st.Compare, Swap: st.New}
		}
		done[k] = st.Atomic
		done[k].Call = e.Now()
		e.Post(wr)
	}
	for range min(depth, len(plan)) {
		finish()
	}
	return done
}

// Atomic is one that was carried out.
type Atomic struct {
	Client int
	Word   int
	// Swap says that it was a compare-and-swap: of Compare by New. Else it added Add.
	Swap              bool
	Compare, New, Add uint64
	// Old is what it returned.
	Old          uint64
	Call, Return time.Duration
}

// String tells it.
func (a Atomic) String() string {
	if a.Swap {
		return fmt.Sprintf("word %d: swap %d by %d -> %d", a.Word, a.Compare, a.New, a.Old)
	}
	return fmt.Sprintf("word %d: add %d -> %d", a.Word, a.Add, a.Old)
}

// word is how a word behaves that atomics work on, and begins with 0.
var word = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		now, a := state.(uint64), input.(Atomic)
		if output.(uint64) != now {
			return false, now
		}
		switch {
		case !a.Swap:
			return true, now + a.Add
		case now == a.Compare:
			return true, a.New
		}
		return true, now
	},
}

// patience bounds how long a history is thought about, in real time.
const patience = 20 * time.Second

// Check returns a violation if the history of some word cannot be put in order.
func Check(history []Atomic) error {
	byWord := make(map[int][]porcupine.Operation)
	for _, a := range history {
		byWord[a.Word] = append(byWord[a.Word], porcupine.Operation{
			ClientId: a.Client, Input: a, Output: a.Old, Call: int64(a.Call), Return: int64(a.Return),
		})
	}
	for _, w := range slices.Sorted(maps.Keys(byWord)) {
		switch porcupine.CheckOperationsTimeout(word, byWord[w], patience) {
		case porcupine.Illegal:
			return conformance.Violatedf(fmt.Sprintf("an order of the %d atomics on word %d in which each returns what the one before left", len(byWord[w]), w), "none: %s", told(history, w))
		case porcupine.Unknown:
			return errors.New("the history is too long to be judged: fewer atomics, please")
		}
	}
	return nil
}

// told tells how the history of a word begins.
func told(history []Atomic, w int) string {
	const most = 6
	of := slices.DeleteFunc(slices.Clone(history), func(a Atomic) bool { return a.Word != w })
	slices.SortStableFunc(of, func(a, b Atomic) int { return cmp.Compare(a.Call, b.Call) })
	s := ""
	for _, a := range of[:min(most, len(of))] {
		s += fmt.Sprintf("%v (%v to %v); ", a, a.Call, a.Return)
	}
	return s + "…"
}
