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

// Outcomes counts the outcomes of a test.
type Outcomes map[string]int

// String lists the outcomes, the most frequent first.
func (s Outcomes) String() string {
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

// Judge runs the test over this many schedules, and returns a violation for the first
// outcome that is not allowed.
func (t *Test) Judge(b *conformance.Bench, schedules int) error {
	_, err := t.Run(b, schedules)
	return err
}

// Run is Judge with the counted outcomes.
func (t *Test) Run(b *conformance.Bench, schedules int) (seen Outcomes, err error) {
	seen = make(Outcomes)
	err = rig.Catch(func() {
		p := rig.NewPair(rig.New(b))
		l := newLitmus(t, p)
		for i := range schedules {
			b.Progress(i, schedules)
			s := l.draw(i)
			outcome := l.run(s)
			seen[outcome]++
			if !t.allows(outcome, s.fences) {
				b.Note("schedule %d: %v: %s", i, s, outcome)
				rig.Abort(conformance.Violated("one of: "+strings.Join(t.Allowed, " | "),
					fmt.Sprintf("%s, in schedule %d (%v)", outcome, i, s)))
			}
		}
	})
	b.Note("outcomes of up to %d schedules: %v", schedules, seen)
	return seen, err
}

// litmus is a test on two devices.
type litmus struct {
	*Test
	pair *rig.Pair
	// hosts are the devices: 0 is the device under test.
	hosts [2]*host
	// endpoints are the two endpoints of each thread, by host.
	endpoints [][2]*rig.Endpoint
	regs      []string
	variables []string
	size      int
	// firstSource is the index of each thread's first source register; scratch is the index
	// of a register for unused results.
	firstSource []int
	scratch     int
}

// host is a device with its memory: variables, which the peer accesses, and registers,
// which are the sources and destinations of its own requests.
type host struct {
	*rig.Rig
	variables, regs *rig.Memory
}

// stride is the distance in bytes between variables, and between registers.
const stride = 8 << 10

func newLitmus(t *Test, p *rig.Pair) *litmus {
	l := &litmus{Test: t, pair: p, size: max(t.Size, 8)}
	l.regs, l.variables = t.names()
	ops := 0
	for _, th := range t.Threads {
		l.firstSource = append(l.firstSource, len(l.regs)+ops)
		ops += len(th)
	}
	l.scratch = len(l.regs) + ops
	for i, r := range []*rig.Rig{p.DUT, p.Partner} {
		l.hosts[i] = &host{Rig: r, variables: rig.RemoteMemory(r, stride*len(l.variables)), regs: rig.RemoteMemory(r, stride*(l.scratch+1))}
	}
	for range t.Threads {
		near, far := p.Connect()
		l.endpoints = append(l.endpoints, [2]*rig.Endpoint{near, far})
	}
	return l
}

// run runs the test once and returns its outcome.
func (l *litmus) run(s *schedule) string {
	local, remote := l.hosts[s.active], l.hosts[1-s.active]
	l.fill(remote.variables, 0)
	l.fill(local.regs, unwritten)
	l.fill(remote.regs, unwritten)
	values := make(map[string]string)
	tasks := make([]conformance.Task, 0, 2*len(l.Threads))
	var results []map[string]string
	start := func(name string, f func() map[string]string) {
		k := len(results)
		results = append(results, nil)
		tasks = append(tasks, l.pair.DUT.Go(name, func() error { return rig.Catch(func() { results[k] = f() }) }))
	}
	for i := range l.Threads {
		if l.messageCount(i) > 0 {
			start(fmt.Sprintf("listener %d", i), l.listen(i, s))
		}
		start(fmt.Sprintf("thread %d", i), func() map[string]string { return l.thread(i, s) })
	}
	for _, task := range tasks {
		if err := task.Wait(4 * l.pair.DUT.ResponseTimeout()); err != nil {
			rig.Abort(err)
		}
	}
	for _, r := range results {
		maps.Copy(values, r)
	}
	for i := range l.endpoints {
		l.flush(i, s)
	}
	remote.variables.Snapshot() // for its side effect: the memory then has all that the device wrote
	for k, name := range l.variables {
		values[name] = l.value(remote.variables, k)
	}
	return l.outcome(values)
}

// flush waits until all Writes of a thread are placed, by Reads of all variables. An
// iWARP Write completes when it is sent, not when it is placed.
func (l *litmus) flush(i int, s *schedule) {
	e, local, remote := l.endpoints[i][s.active], l.hosts[s.active], l.hosts[1-s.active]
	for k := range l.variables {
		e.PostSend(verbs.SendWR{
			Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled,
			SGL: local.regs.SGL(l.scratch*stride, l.size), Remote: remote.variables.Remote(k * stride),
		})
		e.NextSuccess()
	}
}

// outcome formats registers and variables: "r0=1 x=2".
func (l *litmus) outcome(values map[string]string) string {
	var all []string
	for _, name := range slices.Concat(l.regs, l.variables) {
		all = append(all, name+"="+values[name])
	}
	return strings.Join(all, " ")
}

// unwritten is the initial value of registers.
const unwritten = 0xeeee_eeee_eeee_eeee

// fill sets all variables or registers to a value.
func (l *litmus) fill(m *rig.Memory, value uint64) {
	m.Snapshot() // synchronize with the device
	for at := 0; at < len(m.Buf); at += 8 {
		binary.NativeEndian.PutUint64(m.Buf[at:], value)
	}
}

// value formats the value of a variable or register.
func (l *litmus) value(m *rig.Memory, k int) string {
	first := binary.NativeEndian.Uint64(m.Buf[k*stride:])
	for at := 8; at < l.size; at += 8 {
		if binary.NativeEndian.Uint64(m.Buf[k*stride+at:]) != first {
			return torn
		}
	}
	if first == unwritten {
		return unset
	}
	return fmt.Sprint(first)
}
