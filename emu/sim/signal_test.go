package sim

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

func TestWaitReportsNotifyOrTimeout(t *testing.T) {
	for _, tc := range []struct {
		name    string
		notify  mono.Time // 0: not
		timeout time.Duration
		want    bool
		at      time.Duration
	}{
		{"notified, no timeout", 10, -1, true, 10},
		{"notified in time", 10, 20, true, 10},
		{"too late", 10, 5, false, 5},
		{"not at all", 0, 5, false, 5},
		{"no patience", 10, 0, false, 0},
	} {
		w := New(Config{})
		var s Signal
		var got bool
		var at time.Duration
		w.Go("p", func(p *Proc) error {
			got, at = p.Wait(&s, WaitReason("x"), tc.timeout), p.Now()
			p.Sleep(100) // an old timeout must not wake this
			if p.Now() != at+100 {
				t.Errorf("%s: slept until %v, not %v", tc.name, p.Now(), at+100)
			}
			return nil
		})
		if tc.notify > 0 {
			w.AtFunc(tc.notify, s.Notify)
		}
		mustRun(t, w)
		if got != tc.want || at != tc.at {
			t.Errorf("%s: %v at %v, want %v at %v", tc.name, got, at, tc.want, tc.at)
		}
		if len(s.waiters) != 0 {
			t.Errorf("%s: %d still wait", tc.name, len(s.waiters))
		}
	}
}

func TestNotifyWakesOneBroadcastWakesAll(t *testing.T) {
	w := New(Config{})
	var s Signal
	woken := 0
	for range 5 {
		w.Go("p", func(p *Proc) error {
			p.Wait(&s, WaitReason("x"), -1)
			woken++
			return nil
		})
	}
	var counts []int
	at := func(t mono.Time, f func()) { w.AtFunc(t, func() { counts = append(counts, woken); f() }) }
	at(10, s.Notify)
	at(20, s.Notify)
	at(30, s.Broadcast)
	at(40, s.Notify) // no waiter: no effect
	mustRun(t, w)
	if counts = append(counts, woken); !slices.Equal(counts, []int{0, 1, 2, 5, 5}) {
		t.Errorf("woken %v", counts)
	}
}

func TestNotifyWithoutWaiterIsLost(t *testing.T) {
	w := New(Config{})
	var s Signal
	s.Notify()
	s.Broadcast()
	w.Go("p", func(p *Proc) error {
		if p.Wait(&s, WaitReason("x"), 5) {
			return errors.New("woken by a signal from before")
		}
		return nil
	})
	mustRun(t, w)
}

// The order of programs woken together, and the waiter that Notify wakes, are
// chosen at random; over seeds, every order occurs.
func TestSeedsCoverEveryWakeOrder(t *testing.T) {
	orders := make(map[string]int)
	picks := make(map[string]int)
	for seed := range uint64(200) {
		w := New(Config{Seed: seed})
		var all, one Signal
		order, pick := "", ""
		for _, name := range []string{"a", "b", "c"} {
			w.Go(name, func(p *Proc) error {
				p.Wait(&all, WaitReason("all"), -1)
				order += name
				p.Wait(&one, WaitReason("one"), -1)
				pick += name
				return nil
			})
		}
		w.AtFunc(10, all.Broadcast)
		for i := range 3 {
			w.AtFunc(mono.Time(20+i), one.Notify)
		}
		mustRun(t, w)
		orders[order]++
		picks[pick]++
	}
	if len(orders) != 6 || len(picks) != 6 {
		t.Errorf("orders %v, picks %v: want all six of each", orders, picks)
	}
}

func TestDeadlockErrorListsWaitReasons(t *testing.T) {
	checkLeaks(t)
	w := New(Config{Chooser: first{}})
	var s Signal
	w.Go("rank 0", func(p *Proc) error {
		p.Sleep(1500)
		p.Wait(&s, WaitReason("a completion on cq 3"), -1)
		return nil
	})
	w.Go("rank 1", func(p *Proc) error {
		p.Wait(&s, WaitReason("rank 0 to join the barrier"), -1)
		return nil
	})
	w.Go("rank 2", func(p *Proc) error { return nil })
	w.Go("rank 3", func(p *Proc) error { p.Wait(&s, nil, -1); return nil })
	err := w.Run()
	var dead *DeadlockError
	if !errors.As(err, &dead) {
		t.Fatalf("err %v", err)
	}
	want := []WaitingProgram{
		{"rank 0", "a completion on cq 3", 1500},
		{"rank 1", "rank 0 to join the barrier", 0},
		{"rank 3", "(not said)", 0},
	}
	if !slices.Equal(dead.Waiting, want) || dead.Now != 1500 {
		t.Errorf("got %+v", dead)
	}
	const text = "deadlock at 1.5µs: nothing is left to happen, and 3 program(s) still wait:\n" +
		"  rank 0 waits for a completion on cq 3 since 1.5µs\n" +
		"  rank 1 waits for rank 0 to join the barrier since 0s\n" +
		"  rank 3 waits for (not said) since 0s"
	if err.Error() != text {
		t.Errorf("got\n%s\nwant\n%s", err, text)
	}
}

func TestPendingTimeoutIsNotDeadlock(t *testing.T) {
	w := New(Config{})
	var s Signal
	w.Go("p", func(p *Proc) error {
		for range 3 {
			p.Wait(&s, WaitReason("x"), time.Second)
		}
		return nil
	})
	mustRun(t, w)
	if w.Now() != mono.Time(3*time.Second) {
		t.Errorf("now %v", w.Now())
	}
}

func ExampleWorld() {
	w := New(Config{Seed: 7})
	var ready Signal
	mail := ""
	w.Go("reader", func(p *Proc) error {
		for mail == "" {
			p.Wait(&ready, WaitReason("mail"), -1)
		}
		fmt.Println(p.Now(), mail)
		return nil
	})
	w.Go("writer", func(p *Proc) error {
		p.Sleep(3 * time.Microsecond)
		mail = "hello"
		ready.Notify()
		return nil
	})
	if err := w.Run(); err != nil {
		fmt.Println(err)
	}
	// Output: 3µs hello
}

// first always chooses the first candidate (FIFO).
type first struct{}

func (first) Choose(string, int) int { return 0 }

// script answers from a list, then 0, and records the choices.
type script struct {
	answers []int
	kinds   []string
	sizes   []int
}

func (s *script) Choose(kind string, n int) int {
	a := 0
	if i := len(s.kinds); i < len(s.answers) {
		a = s.answers[i]
	}
	s.kinds = append(s.kinds, kind)
	s.sizes = append(s.sizes, n)
	return a
}

func orderOf(c Chooser) (order string) {
	w := New(Config{Chooser: c})
	for _, name := range []string{"a", "b", "c"} {
		w.Go(name, func(*Proc) error { order += name; return nil })
	}
	if err := w.Run(); err != nil {
		panic(err)
	}
	return order
}

// A Chooser that enumerates all answers sees every order once.
func TestChooserEnumeratesEverySchedule(t *testing.T) {
	var orders []string
	for path := []int{}; ; {
		s := &script{answers: path}
		orders = append(orders, orderOf(s))
		path = append(slices.Clone(path), make([]int, len(s.sizes)-len(path))...)
		i := len(path) - 1
		for ; i >= 0 && path[i] == s.sizes[i]-1; i-- {
		}
		if i < 0 {
			break
		}
		path = append(path[:i:i], path[i]+1)
	}
	if want := []string{"abc", "acb", "bac", "bca", "cab", "cba"}; !slices.Equal(orders, want) {
		t.Errorf("orders %v, want %v", orders, want)
	}
}

func TestChooserIsNotCalledForOneCandidate(t *testing.T) {
	s := &script{}
	orderOf(s)
	if !slices.Equal(s.sizes, []int{3, 2}) || !slices.Equal(s.kinds, []string{"run", "run"}) {
		t.Errorf("choices %v of sizes %v", s.kinds, s.sizes)
	}
}

func TestChoosePanicsOnInvalidArguments(t *testing.T) {
	w := New(Config{Chooser: &script{answers: []int{2, -1}}})
	mustPanic(t, `Chooser answered 2 to Choose("x", 2)`, func() { w.Choose("x", 2) })
	mustPanic(t, "Chooser answered -1", func() { w.Choose("x", 2) })
	mustPanic(t, "nothing to choose from", func() { w.Choose("x", 0) })
}

func TestRandomChoiceIsUniform(t *testing.T) {
	w := New(Config{Seed: 11})
	var n [5]int
	for range 50_000 {
		n[w.Choose("x", 5)]++
	}
	for i, k := range n {
		if k < 9_500 || k > 10_500 {
			t.Errorf("choice %d was made %d times of 50000", i, k)
		}
	}
}

func TestRandDependsOnSeedAndNameOnly(t *testing.T) {
	draw := func(seed uint64, others ...string) (out [4]uint64) {
		w := New(Config{Seed: seed})
		for _, name := range others {
			w.Rand(name).Uint64()
		}
		for i := range out {
			out[i] = w.Rand("mine").Uint64() // the same stream at its current position
		}
		return out
	}
	want := draw(1)
	if got := draw(1, "a", "b", "zz"); got != want {
		t.Error("other streams change this one")
	}
	if draw(2) == want {
		t.Error("another seed gives the same stream")
	}
	seen := map[uint64]string{}
	w := New(Config{Seed: 1})
	for i := range 1000 {
		name := fmt.Sprint("stream", i)
		v := w.Rand(name).Uint64()
		if other, ok := seen[v]; ok {
			t.Fatalf("streams %s and %s begin alike", name, other)
		}
		seen[v] = name
	}
	if want[0] != 0xa71b7a1faf9a81bd {
		t.Errorf("seed 1, stream \"mine\" begins with %#x: it must be the same on every machine and in every version", want[0])
	}
}
