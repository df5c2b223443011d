package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fabrictest/fabrictest/report"
)

// endless is a scenario of three ranks that takes longer than any test waits.
func endless(limit string) string { return endlessOf(3, limit) }

func endlessOf(ranks int, limit string) string {
	return fmt.Sprintf(`version: 1
name: endless
title: Everyone to everyone, without end
fabric: {kind: star, hosts: %d}
workload: {kind: all-to-all, messages: 1000000, bytes: 4KiB, think: 1ms}
limit: %s
`, ranks, limit)
}

// startEndless starts it in namespaces, and returns when all ranks are at work.
func (s *stage) startEndless(limit string) (*running, []process) {
	GinkgoHelper()
	return s.startEndlessOf(3, limit)
}

func (s *stage) startEndlessOf(n int, limit string) (*running, []process) {
	GinkgoHelper()
	file := s.write("endless.yaml", endlessOf(n, limit))
	r := s.start(s.command("run", file, "--on", "netns", "--capture", "none", "--out", "out"))
	var ranks []process
	Eventually(func() int {
		ranks = s.with(rank)
		busy := 0
		for _, p := range ranks {
			if p.ticks() >= 5 {
				busy++
			}
		}
		return busy
	}).Should(Equal(n), "ranks at work")
	Expect(s.noteNamespaces()).To(BeNumerically(">=", n+1)) // hosts, and where the lab is
	return r, ranks
}

var _ = Describe("a rank of a scenario", func() {
	var s *stage
	BeforeEach(func() {
		needNamespaces()
		s = newStage()
	})

	for sig, words := range map[syscall.Signal]string{
		syscall.SIGKILL: "ended by SIGKILL, not from here",
		syscall.SIGSEGV: "SIGSEGV: segmentation violation",
	} {
		It(fmt.Sprintf("that is ended by %v is named, and the others are stopped and asked", sig), func() {
			r, ranks := s.startEndless("60s")
			victim := ranks[1]
			Expect(syscall.Kill(victim.pid, sig)).To(Succeed())
			o := r.wait()
			Expect(o.code).To(Equal(1), o.String())
			res := only(s.result(s.path("work", "out")))
			Expect(res.Verdict).To(Equal(report.Failed), res.Reason)
			var ended, hung int
			for _, k := range res.Ranks {
				switch k.State {
				case "exited":
					ended++
					Expect(k.Error).To(ContainSubstring(words))
					Expect(res.Checks[0].Got).To(ContainSubstring(fmt.Sprintf("rank %d on %s exited: ", k.Rank, k.Host)))
					Expect(res.Checks[0].Got).To(ContainSubstring(fmt.Sprintf("the run was ended when rank %d (%s) ", k.Rank, k.Host)))
					if sig == syscall.SIGKILL {
						Expect(k.Signal).To(Equal("SIGKILL"))
					}
				case "hung":
					hung++
					Expect(k.Waiting).To(ContainSubstring("all-to-all"), "what it was at")
				}
			}
			Expect([]int{ended, hung}).To(Equal([]int{1, 2}), "%+v", res.Ranks)
			Expect(o.stdout).To(ContainSubstring("FAIL    endless"))
			Expect(o.stdout).To(ContainSubstring("fabrictest run endless.yaml --on netns --seed 1"), "how to repeat it")
			s.expectNothingRemains()
		})
	}

	It("that stands still is found by the limit, and the kernel tells what it was at", func() {
		slow()
		// Of two, who is not stopped has nothing to do until then; of three it would have.
		r, ranks := s.startEndlessOf(2, "3s")
		Expect(syscall.Kill(ranks[1].pid, syscall.SIGSTOP)).To(Succeed())
		o := r.wait()
		res := only(s.result(s.path("work", "out")))
		expectTooLate(o, res)
		Expect(res.Checks[0].Got).To(MatchRegexp("rank . on host. did not end: the limit of 3 ?s is reached"))
		stopped := 0
		for _, k := range res.Ranks {
			if strings.Contains(k.Waiting, "stopped") {
				stopped++
			}
		}
		if res.First == nil { // else it was repeated, and nobody was stopped then
			Expect(stopped).To(Equal(1), "%+v", res.Ranks)
		}
		s.expectNothingRemains()
	})
})

var _ = Describe("a program in the hosts of a fabric", func() {
	var s *stage
	BeforeEach(func() {
		needNamespaces()
		s = newStage()
	})
	// Rank 1 does something; the others would go on for long.
	onRank1 := func(script string, args ...string) outcome {
		GinkgoHelper()
		o := s.run(append(append([]string{"lab", "exec", "-n", "3"}, args...), "--", "sh", "-c",
			`[ $FABRICTEST_RANK = 1 ] || exec sleep 600; `+script)...)
		Expect(o.took).To(BeNumerically("<", patience), "the others are stopped")
		return o
	}

	It("that segfaults is named with its signal, which is the exit code", func() {
		o := onRank1("kill -SEGV $$")
		Expect(o.code).To(Equal(128+int(syscall.SIGSEGV)), o.String())
		Expect(lines(o.stderr)).To(HaveExactElements("fabrictest: host1 crashed: ended by SIGSEGV"))
	})

	It("that fails ends the others, and its code is ours", func() {
		o := onRank1("echo it is over; exit 7")
		Expect(o.code).To(Equal(7), o.String())
		Expect(o.stdout).To(Equal("host1: it is over\n"))
		Expect(lines(o.stderr)).To(HaveExactElements("fabrictest: host1 exited: exited with 7"))
	})

	It("that exits early with 0 lets the others come to their end", func() {
		o := s.run("lab", "exec", "-n", "3", "--", "sh", "-c",
			`[ $FABRICTEST_RANK = 1 ] && exit 0; while [ -e wait ]; do sleep 0.05; done; echo done`)
		Expect(o.code).To(Equal(0), o.String())
		Expect(lines(o.stdout)).To(ConsistOf("host0: done", "host2: done"))
	})

	It("that fails lets the others go on with --keep-going", func() {
		o := s.run("lab", "exec", "-n", "3", "--keep-going", "--", "sh", "-c",
			`[ $FABRICTEST_RANK = 1 ] && { touch failed; exit 3; }; until [ -e failed ]; do sleep 0.01; done; echo done`)
		Expect(o.code).To(Equal(3), o.String())
		Expect(lines(o.stdout)).To(ConsistOf("host0: done", "host2: done"))
	})

	It("that leaves children behind takes them along", func() {
		o := s.run("lab", "exec", "-n", "2", "--", "sh", "-c", "setsid sleep 600 & sleep 600 & exit 0")
		Expect(o.code).To(Equal(0), o.String())
		s.expectNothingRemains()
	})

	It("that floods its output neither stops the others nor fills our memory", func() {
		slow()
		const flood = 32 << 20 // twice what is kept of it
		counted := &tailCounter{}
		cmd := s.command("lab", "exec", "-n", "2", "--plain", "--", "sh", "-c", fmt.Sprintf(
			`[ $FABRICTEST_RANK = 1 ] && { yes "$(printf %%999s flood)" | head -c %d; exit 0; }; echo quiet`, flood))
		cmd.Stdout = counted
		r := s.start(cmd)
		most := 0
		Eventually(func() bool {
			for _, p := range s.with(lab) {
				most = max(most, p.peakMiB())
			}
			return r.ended()
		}).Should(BeTrue())
		o := r.wait()
		Expect(o.code).To(Equal(0), o.String())
		Expect(counted.n).To(BeNumerically("<", flood))
		Expect(counted.n).To(BeNumerically(">", flood/4))
		Expect(counted.String()).To(MatchRegexp(`… cut, \d+ bytes more`))
		Expect(most).To(And(BeNumerically(">", 0), BeNumerically("<", 150)), "MiB")
	})

	It("that is stopped from outside ends with Ctrl-C all the same", func() {
		r := s.start(s.command("lab", "exec", "-n", "2", "--", "sleep", "600"))
		Eventually(func() int { return len(s.with(other)) }).Should(Equal(2))
		s.noteNamespaces()
		for _, p := range s.with(other) {
			Expect(syscall.Kill(p.pid, syscall.SIGSTOP)).To(Succeed())
		}
		began := time.Now()
		r.interrupt()
		o := r.wait()
		Expect(o.code).NotTo(Equal(0), o.String())
		Expect(time.Since(began)).To(BeNumerically("<", patience))
		s.expectNothingRemains()
	})
})

// tailCounter counts what is written and keeps the end of it.
type tailCounter struct {
	buffer
	n int
}

func (c *tailCounter) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += len(b)
	if c.b.Len() > 64<<10 {
		c.b.Reset()
	}
	return c.b.Write(b)
}
