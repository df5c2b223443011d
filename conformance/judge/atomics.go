package judge

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

// Size of the test: words and queue pairs per device, atomics per queue pair, and
// outstanding atomics per queue pair.
const (
	atomicWords  = 3
	atomicQPs    = 4
	atomicsPerQP = 24
	atomicDepth  = 3
)

// runAtomics checks with Porcupine that atomics are linearizable: many queue pairs add to and
// swap the same words while packets are lost, duplicated and delayed, which causes
// retransmitted requests and replayed responses. FetchAdd of 0 is the atomic read; plain
// READs are not checked, as no specification makes them atomic. Each round uses the next of
// atomicPaths, or the unimpaired path if the bench (the test setup) cannot impair packets.
func runAtomics(b *conformance.Bench) error {
	return rig.Catch(func() { // returns the error with which rig.Abort ends the function
		p := rig.NewPair(rig.New(b))
		s := newAtomicsTest(p)
		rounds := b.Schedules(len(atomicPaths))
		for i := range rounds {
			b.Progress(i, rounds)
			path := atomicPaths[i%len(atomicPaths)]
			if !p.SetPath(path) {
				path = conformance.Path{}
			}
			s.clearWords()
			history := s.run()
			b.Note("%d atomics, %d ppm of packets lost", len(history), path.LossPPM)
			if err := checkLinearizable(history); err != nil {
				rig.Abort(err)
			}
		}
	})
}

// atomicPaths are the impairments of the network, which the rounds use in turn.
var atomicPaths = []conformance.Path{
	{},
	{Jitter: 10 * time.Microsecond},
	{LossPPM: 50_000},
	{LossPPM: 30_000, DuplicatePPM: 200_000, Jitter: 50 * time.Microsecond},
}

type atomicsTest struct {
	pair *rig.Pair
	// hosts are the memory of each device: the words that its peer accesses, and the results of
	// its own atomics. 0 is the device under test.
	hosts     [2]struct{ words, results *rig.Memory }
	endpoints [][2]*rig.Endpoint
}

// newAtomicsTest registers the memory of both devices and connects atomicQPs queue pairs.
func newAtomicsTest(p *rig.Pair) *atomicsTest {
	s := &atomicsTest{pair: p}
	for i, r := range []*rig.Rig{p.DUT, p.Partner} {
		s.hosts[i].words, s.hosts[i].results = rig.RemoteMemory(r, 8*atomicWords), r.Memory(8*atomicQPs*atomicsPerQP, verbs.AccessLocalWrite)
	}
	for range atomicQPs {
		dut, partner := p.Connect()
		s.endpoints = append(s.endpoints, [2]*rig.Endpoint{dut, partner})
	}
	return s
}

// run executes a random plan on every queue pair of both hosts, concurrently. It returns all
// operations; each queue pair is a client of the history.
func (s *atomicsTest) run() (history []atomicOp) {
	var tasks []pairTask[[]atomicOp]
	for i := range atomicQPs {
		for host := range s.hosts {
			plan := s.plan(host)
			tasks = append(tasks, pairTask[[]atomicOp]{
				fmt.Sprintf("queue pair %d of host %d", i, host), func() []atomicOp { return s.execute(i, host, plan) },
			})
		}
	}
	for client, list := range runTasks(s.pair, tasks) {
		for _, a := range list {
			a.Client = client
			history = append(history, a)
		}
	}
	return history
}

// atomicStep is an atomic operation and the pause before it.
type atomicStep struct {
	atomicOp
	pause time.Duration
}

// plan draws random operations for a queue pair of host, on the words of the other host. All
// plans are drawn before the tasks start, and therefore depend on the seed only.
func (s *atomicsTest) plan(host int) []atomicStep {
	rand := s.pair.DUT.Rand
	plan := make([]atomicStep, atomicsPerQP)
	for i := range plan {
		a := atomicOp{Word: (1-host)*atomicWords + rand.IntN(atomicWords)}
		// Values and pauses have small ranges, so that swaps often succeed and operations overlap.
		switch rand.IntN(4) {
		case 0: // an add of 0: an atomic read
		case 1, 2:
			a.Swap, a.Compare, a.New = true, uint64(rand.IntN(6)), uint64(rand.IntN(6))
		default:
			a.Add = 1 + uint64(rand.IntN(2))
		}
		plan[i] = atomicStep{a, time.Duration(rand.IntN(5)) * time.Microsecond}
	}
	return plan
}

// clearWords sets all words to 0. A remote device has the zeros before its peers access them.
func (s *atomicsTest) clearWords() {
	for _, h := range s.hosts {
		h.words.Snapshot() // fetches the words of a remote device
		clear(h.words.Buf)
		h.words.Snapshot() // and sends it what has changed
	}
}

// execute executes a plan on queue pair i of a host, with up to atomicDepth operations
// outstanding. It returns the operations with their times and old values. A swap compares with the
// value after the queue pair's last completed operation on the word, so that many swaps succeed.
func (s *atomicsTest) execute(i, host int, plan []atomicStep) []atomicOp {
	e, local, remote := s.endpoints[i][host], s.hosts[host], s.hosts[1-host]
	done := make([]atomicOp, len(plan))
	last := make(map[int]uint64) // value by word
	awaitCompletion := func() {
		wc := e.NextSuccess()
		a := &done[wc.WRID]
		a.Return = e.Now()
		a.Old = binary.NativeEndian.Uint64(local.results.Buf[8*(i*atomicsPerQP+int(wc.WRID)):])
		last[a.Word] = a.after(a.Old)
	}
	for k, step := range plan {
		if k >= atomicDepth {
			awaitCompletion()
		}
		e.Sleep(step.pause)
		wr := verbs.SendWR{
			WRID: uint64(k), Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled,
			SGL:    local.results.SGL(8*(i*atomicsPerQP+k), 8),
			Remote: remote.words.Remote(8 * (step.Word % atomicWords)), Atomic: verbs.Atomic{CompareAdd: step.Add},
		}
		if step.Swap {
			if v, known := last[step.Word]; known {
				step.Compare = v
			}
			wr.Opcode, wr.Atomic = verbs.OpAtomicCmpAndSwp, verbs.Atomic{CompareAdd: step.Compare, Swap: step.New}
		}
		done[k] = step.atomicOp
		done[k].Call = e.Now()
		e.PostSend(wr)
	}
	for range min(atomicDepth, len(plan)) {
		awaitCompletion()
	}
	return done
}

// atomicOp is an executed atomic operation.
type atomicOp struct {
	Client int
	Word   int // number of the word; those of host 1 follow those of host 0
	// Swap: a compare-and-swap of Compare for New. Otherwise a fetch-and-add of Add.
	Swap              bool
	Compare, New, Add uint64
	// Old is the returned value.
	Old          uint64
	Call, Return time.Duration
}

// after returns the value of a word that had the value old before the operation.
func (a *atomicOp) after(old uint64) uint64 {
	switch {
	case !a.Swap:
		return old + a.Add
	case old == a.Compare:
		return a.New
	}
	return old
}

// String formats an operation with its old value: "word 1: swap 4 by 5 -> 4" compares with 4 and
// stores 5.
func (a atomicOp) String() string {
	if a.Swap {
		return fmt.Sprintf("word %d: swap %d by %d -> %d", a.Word, a.Compare, a.New, a.Old)
	}
	return fmt.Sprintf("word %d: add %d -> %d", a.Word, a.Add, a.Old)
}

// wordModel is the sequential model of a word, initially 0. An operation returns the old value.
var wordModel = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		now, a := state.(uint64), input.(atomicOp)
		if output.(uint64) != now {
			return false, now
		}
		return true, a.after(now)
	},
}

// checkTimeout limits the linearizability check, in real time.
const checkTimeout = 20 * time.Second

// checkLinearizable returns a violation if the history of any word is not linearizable, and another
// error if the check takes longer than checkTimeout.
func checkLinearizable(history []atomicOp) error {
	byWord := make(map[int][]porcupine.Operation)
	for _, a := range history {
		byWord[a.Word] = append(byWord[a.Word], porcupine.Operation{
			ClientId: a.Client, Input: a, Output: a.Old, Call: int64(a.Call), Return: int64(a.Return),
		})
	}
	for _, w := range slices.Sorted(maps.Keys(byWord)) {
		switch porcupine.CheckOperationsTimeout(wordModel, byWord[w], checkTimeout) {
		case porcupine.Illegal:
			return conformance.Violatedf(fmt.Sprintf("a linear order of the %d atomics on word %d", len(byWord[w]), w), "none: %s", formatHistory(history, w))
		case porcupine.Unknown:
			return errors.New("the linearizability check timed out: the history is too long")
		}
	}
	return nil
}

// formatHistory formats the first operations on word w, in the order of their calls.
func formatHistory(history []atomicOp, w int) string {
	const maxShown = 6
	ops := slices.DeleteFunc(slices.Clone(history), func(a atomicOp) bool { return a.Word != w })
	slices.SortStableFunc(ops, func(a, b atomicOp) int { return cmp.Compare(a.Call, b.Call) })
	s := ""
	for _, a := range ops[:min(maxShown, len(ops))] {
		s += fmt.Sprintf("%v (%v to %v); ", a, a.Call, a.Return)
	}
	return s + "…"
}
