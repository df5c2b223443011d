package verbsapi

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var taskCases = []conformance.Case{{
	ID: "verbs/tasks/one-queue-pair", Cite: cite(packageVerbs, "verbs/tasks/1"),
	Title:   "Several tasks may post to one queue pair: every request is executed once, and in each task's order",
	Sends:   "four concurrent tasks with eight messages each",
	Expects: "32 completions, one for each request, and 32 messages, those of a task in its order",
	Defects: []string{"WCDoubled", "WCLost"}, Run: onPair(setup{caps: verbs.QPCaps{MaxSendWR: 32, MaxRecvWR: 32, MaxSendSGE: 1, MaxRecvSGE: 1}}, func(l *qpPair) {
		const tasks, each = 4, 8
		copy(l.dut.mem.Buf, rig.Pattern(16*tasks, 0)) // task t sends the bytes from 16·t on
		for i := range tasks * each {
			l.partner.postRecv(uint64(i), recvOffset+i*64, 8)
		}
		running := make([]conformance.Task, 0, tasks)
		for t := range tasks {
			running = append(running, l.dut.Go(fmt.Sprintf("poster %d", t), func() error {
				return rig.Catch(func() {
					for i := range each {
						l.dut.PostSend(l.dut.qp, l.dut.sendWR(uint64(100*t+i), 16*t+i, 1))
					}
				})
			}))
		}
		arrived := make(map[byte][]byte) // by task
		for range tasks * each {
			wc := l.partner.NextCompletion()
			l.partner.Check(wc.Status == verbs.WCSuccess, "a message", "%s", rig.Describe(&wc))
			got := l.partner.mem.Buf[recvOffset+int(wc.WRID)*64+l.partner.grhLen()]
			arrived[got/16] = append(arrived[got/16], got)
		}
		for t := range tasks {
			got, want := arrived[byte(t)], rig.Pattern(each, byte(16*t))
			l.dut.Check(bytes.Equal(got, want), fmt.Sprintf("the messages % x of task %d, in this order", want, t), "% x", got)
		}
		for _, task := range running {
			l.dut.Must("successful posts", task.Wait(l.dut.ResponseTimeout()))
		}
		left := make(map[uint64]bool)
		for t := range tasks {
			for i := range each {
				left[uint64(100*t+i)] = true
			}
		}
		for _, wc := range pollCompletions(l.dut.Rig, l.dut.CQ, tasks*each, 5) {
			l.dut.Check(wc.Status == verbs.WCSuccess && left[wc.WRID], "the completion of a request that has not completed yet", "%s", rig.Describe(&wc))
			delete(left, wc.WRID)
		}
		expectEmptyCQ(l.dut.Rig, l.dut.CQ)
	}),
}, {
	ID: "verbs/tasks/one-completion-queue", Cite: cite(packageVerbs, "verbs/tasks/2"),
	Title:   "Several tasks may poll one completion queue: every completion is returned once",
	Sends:   "64 completions, and four tasks that poll",
	Expects: "each of them once",
	Defects: []string{"WCDoubled", "WCLost"}, Run: rig.Body(func(r *rig.Rig) {
		const all = 64
		cq := newCQ(r, 2*all, nil)
		s := newFlushSource(r, cq)
		counts := make([][all + 1]int, 4)
		running := make([]conformance.Task, 0, len(counts))
		until := r.Now() + taskTimeoutFactor*r.ResponseTimeout()
		var seen atomic.Int64
		for t := range counts {
			running = append(running, r.Go(fmt.Sprintf("poller %d", t), func() error {
				into := make([]verbs.WC, 3)
				pause := shortWait / 10 // grows as long as nothing arrives
				// Poll on for a while: a completion may arrive twice.
				for idle := 0; idle < 5 && r.Now() < until; {
					n, err := cq.Poll(into)
					if err != nil {
						return err
					}
					seen.Add(int64(n))
					for _, wc := range into[:n] {
						counts[t][min(wc.WRID, all)]++
					}
					if n > 0 || seen.Load() < all-1 {
						idle = 0
					} else {
						idle++
					}
					if n > 0 {
						pause = shortWait / 10
					} else {
						pause = min(2*pause, r.ResponseTimeout()/10)
					}
					r.Sleep(pause)
				}
				return nil
			}))
		}
		for range 9 {
			s.addCompletions((all - 1) / 9)
		}
		for _, task := range running {
			r.Must("polls", task.Wait(2*taskTimeoutFactor*r.ResponseTimeout()))
		}
		for id := 1; id < all; id++ {
			times := 0
			for t := range counts {
				times += counts[t][id]
			}
			r.Check(times == 1, fmt.Sprintf("completion %d once", id), "%d times", times)
		}
	}),
}, {
	ID: "verbs/tasks/objects-beside-each-other", Cite: cite(packageVerbs, "verbs/tasks/3"),
	Title:   "Several tasks may create, use and close objects of a device concurrently",
	Sends:   "four tasks that create queue pairs, move them to ERR, and poll their flushed receives, forty times each",
	Expects: "in every round the completions of the task's own requests, and no others",
	Defects: []string{"WCLost", "WCQPNWrong"}, Run: rig.Body(func(r *rig.Rig) {
		running := make([]conformance.Task, 0, 4)
		for t := range cap(running) {
			r := forTask(r)
			running = append(running, r.Go(fmt.Sprintf("maker %d", t), func() error {
				return rig.Catch(func() {
					for range 40 {
						cq := newCQ(r, 8, nil)
						s := newFlushSource(r, cq)
						s.addCompletions(5)
						for _, wc := range pollCompletions(r, cq, 5, 2) {
							r.Check(wc.QPN == s.qp.QPN(), fmt.Sprintf("queue pair %#x", uint32(s.qp.QPN())), "%#x", uint32(wc.QPN))
						}
						r.Must("a queue pair that can be closed", s.qp.Close())
						r.Must("a completion queue that can be closed", cq.Close())
					}
				})
			}))
		}
		for _, task := range running {
			if err := task.Wait(taskTimeoutFactor * r.ResponseTimeout()); err != nil {
				rig.Abort(err)
			}
		}
	}),
}}

// taskTimeoutFactor is the number of response timeouts that concurrent tasks may take: the device's
// host may have a single, emulated processor.
const taskTimeoutFactor = 20

// forTask returns a copy of a rig with another random number generator, for a task that runs
// concurrently with the case: tasks must not share a generator.
func forTask(r *rig.Rig) *rig.Rig {
	bench := *r.Bench
	bench.Rand = rand.New(rand.NewPCG(r.Rand.Uint64(), r.Rand.Uint64()))
	taskRig := *r
	taskRig.Bench = &bench
	return &taskRig
}
