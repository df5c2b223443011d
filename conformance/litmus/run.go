package litmus

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Seen counts the outcomes of a test over its schedules.
type Seen map[string]int

// String tells them, the most frequent first.
func (s Seen) String() string {
	all := slices.SortedFunc(maps.Keys(s), func(a, b string) int {
		if s[a] != s[b] {
			return s[b] - s[a]
		}
		return strings.Compare(a, b)
	})
	for i, o := range all {
		all[i] = fmt.Sprintf("%s (%d times)", o, s[o])
	}
	return strings.Join(all, ", ")
}

// Judge runs the test over so many schedules, and returns a violation for the first
// outcome that may not come.
func (t *Test) Judge(b *conformance.Bench, schedules int) error {
	_, err := t.Run(b, schedules)
	return err
}

// Run is Judge that returns what has come of it.
func (t *Test) Run(b *conformance.Bench, schedules int) (seen Seen, err error) {
	seen = make(Seen)
	err = rig.Caught(func() {
		p := rig.NewPair(rig.New(b))
		l := newLitmus(t, p)
		for i := range schedules {
			b.Progress(i, schedules)
			s := l.draw(i)
			outcome := l.run(s)
			seen[outcome]++
			if !t.may(outcome, s.fences) {
				b.Note("schedule %d: %v: %s", i, s, outcome)
				rig.End(conformance.Violated("one of: "+strings.Join(t.Allowed, " | "),
					fmt.Sprintf("%s, in schedule %d (%v)", outcome, i, s)))
			}
		}
	})
	b.Note("outcomes of up to %d schedules: %v", schedules, seen)
	return seen, err
}

// litmus is a test between two devices.
type litmus struct {
	*Test
	p *rig.Pair
	// hosts are the devices: 0 is the one under test.
	hosts [2]*host
	// ends are the queue pairs of each thread, by host.
	ends   [][2]*rig.PairEnd
	regs   []string
	places []string
	size   int
	// first is where the registers of each thread's own begin: what it writes. Behind
	// them is one for scratch.
	first   []int
	scratch int
}

// host is what a device has for the test: places that its peer works on, and
// registers, where results come to and what is written comes from.
type host struct {
	*rig.Rig
	places, regs *rig.Memory
}

// room is how far places, and registers, are apart.
const room = 8 << 10

func newLitmus(t *Test, p *rig.Pair) *litmus {
	l := &litmus{Test: t, p: p, size: max(t.Size, 8)}
	l.regs, l.places = t.names()
	ops := 0
	for _, th := range t.Threads {
		l.first = append(l.first, len(l.regs)+ops)
		ops += len(th)
	}
	l.scratch = len(l.regs) + ops
	for i, r := range []*rig.Rig{p.Near, p.Far} {
		l.hosts[i] = &host{Rig: r, places: rig.PairMemory(r, room*len(l.places)), regs: rig.PairMemory(r, room*(l.scratch+1))}
	}
	for range t.Threads {
		near, far := p.Link()
		l.ends = append(l.ends, [2]*rig.PairEnd{near, far})
	}
	return l
}

// run runs the test once and returns the outcome.
func (l *litmus) run(s *schedule) string {
	me, other := l.hosts[s.active], l.hosts[1-s.active]
	l.fill(other.places, 0)
	l.fill(me.regs, nothing)
	l.fill(other.regs, nothing)
	found := make(map[string]string)
	tasks := make([]conformance.Task, 0, 2*len(l.Threads))
	var results []map[string]string
	begin := func(name string, f func() map[string]string) {
		k := len(results)
		results = append(results, nil)
		tasks = append(tasks, l.p.Near.Go(name, func() error { return rig.Caught(func() { results[k] = f() }) }))
	}
	for i := range l.Threads {
		if l.told(i) > 0 {
			begin(fmt.Sprintf("listener %d", i), l.listen(i, s))
		}
		begin(fmt.Sprintf("thread %d", i), func() map[string]string { return l.thread(i, s) })
	}
	for _, task := range tasks {
		if err := task.Wait(4 * l.p.Near.Patience()); err != nil {
			rig.End(err)
		}
	}
	for _, r := range results {
		maps.Copy(found, r)
	}
	for i := range l.ends {
		l.flush(i, s)
	}
	other.places.Accept() // the device has finished what it is at
	for k, place := range l.places {
		found[place] = l.look(other.places, k)
	}
	return l.outcome(found)
}

// flush has all that a thread has written be in place: a Read sees the Writes before it
// on every transport, while over iWARP a Write has completed when it has left.
func (l *litmus) flush(i int, s *schedule) {
	e, me, other := l.ends[i][s.active], l.hosts[s.active], l.hosts[1-s.active]
	for k := range l.places {
		e.Post(verbs.SendWR{
			Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled,
			SGL: me.regs.List(l.scratch*room, l.size), Remote: other.places.Remote(k * room),
		})
		e.Wait()
	}
}

// outcome tells registers and places: "r0=1 x=2".
func (l *litmus) outcome(found map[string]string) string {
	var all []string
	for _, name := range slices.Concat(l.regs, l.places) {
		all = append(all, name+"="+found[name])
	}
	return strings.Join(all, " ")
}

// nothing is what is in a register that nothing came to.
const nothing = 0xeeee_eeee_eeee_eeee

// fill has all places, or registers, hold a value.
func (l *litmus) fill(m *rig.Memory, value uint64) {
	m.Accept() // the device has finished what it is at
	for at := 0; at < len(m.Buf); at += 8 {
		binary.NativeEndian.PutUint64(m.Buf[at:], value)
	}
}

// look returns what a place, or a register, holds.
func (l *litmus) look(m *rig.Memory, k int) string {
	first := binary.NativeEndian.Uint64(m.Buf[k*room:])
	for at := 8; at < l.size; at += 8 {
		if binary.NativeEndian.Uint64(m.Buf[k*room+at:]) != first {
			return torn
		}
	}
	if first == nothing {
		return unset
	}
	return fmt.Sprint(first)
}
