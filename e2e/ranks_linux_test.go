//go:build e2e

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

// endless returns a scenario of three ranks that lasts longer than any test waits.
func endless(limit string) string { return endlessOf(3, limit) }

func endlessOf(ranks int, limit string) string {
	return fmt.Sprintf(`version: 1
name: endless
title: An endless all-to-all
fabric: {kind: star, hosts: %d}
workload: {kind: all-to-all, messages: 1000000, bytes: 4KiB, think: 1ms}
limit: %s
`, ranks, limit)
}

// startEndless starts the scenario in namespaces, and returns when all ranks are running.
func (s *sandbox) startEndless(limit string) (*running, []process) {
	GinkgoHelper()
	return s.startEndlessOf(3, limit)
}

func (s *sandbox) startEndlessOf(n int, limit string) (*running, []process) {
	GinkgoHelper()
	file := s.write("endless.yaml", endlessOf(n, limit))
	r := s.start(s.command("run", file, "--on", "netns", "--capture", "none", "--out", "out"))
	var ranks []process
	Eventually(func() int {
		ranks = s.withRole(rank)
		busy := 0
		for _, p := range ranks {
			if p.ticks() >= 5 {
				busy++
			}
		}
		return busy
	}).Should(Equal(n), "running ranks")
	Expect(s.recordNamespaces()).To(BeNumerically(">=", n+1)) // the hosts and the lab
	return r, ranks
}

var _ = Describe("a rank of a scenario", func() {
	var s *sandbox
	BeforeEach(func() {
		needNamespaces()
		s = newSandbox()
	})

	for sig, message := range map[syscall.Signal]string{
		syscall.SIGKILL: "ended by SIGKILL, which the launcher did not send",
		syscall.SIGSEGV: "SIGSEGV: segmentation violation",
	} {
		It(fmt.Sprintf("that is ended by %v is reported, with the operations of the other ranks", sig), func() {
			r, ranks := s.startEndless("60s")
			Expect(syscall.Kill(ranks[1].pid, sig)).To(Succeed())
			o := r.wait()
			Expect(o.code).To(Equal(1), o.String())
			res := singleResult(s.result(s.path("work", "out")))
			Expect(res.Verdict).To(Equal(report.Failed), res.Reason)
			var ended, hung int
			for _, k := range res.Ranks {
				switch k.State {
				case "exited":
					ended++
					Expect(k.Error).To(ContainSubstring(message))
					Expect(res.Checks[0].Got).To(ContainSubstring(fmt.Sprintf("rank %d on %s exited: ", k.Rank, k.Host)))
					Expect(res.Checks[0].Got).To(ContainSubstring(fmt.Sprintf("the run was ended when rank %d (%s) ", k.Rank, k.Host)))
					if sig == syscall.SIGKILL {
						Expect(k.Signal).To(Equal("SIGKILL"))
					}
				case "hung":
					hung++
					Expect(k.Waiting).To(ContainSubstring("all-to-all"), "its operation")
				}
			}
			Expect([]int{ended, hung}).To(Equal([]int{1, 2}), "%+v", res.Ranks)
			Expect(o.stdout).To(ContainSubstring("FAIL    endless"))
			Expect(o.stdout).To(ContainSubstring("fabrictest run endless.yaml --on netns --seed 1"), "the command to repeat the run")
			s.expectNoLeaks()
		})
	}

	It("that is stopped ends the run at the time limit, and is reported as stopped", func() {
		slow()
		// With two ranks, the one that is not stopped blocks; with three it would go on.
		r, ranks := s.startEndlessOf(2, "3s")
		Expect(syscall.Kill(ranks[1].pid, syscall.SIGSTOP)).To(Succeed())
		o := r.wait()
		res := singleResult(s.result(s.path("work", "out")))
		expectTimedOut(o, res)
		Expect(res.Checks[0].Got).To(MatchRegexp("rank . on host. did not end: the limit of 3 ?s is reached"))
		stopped := 0
		for _, k := range res.Ranks {
			if strings.Contains(k.Waiting, "stopped") {
				stopped++
			}
		}
		if res.First == nil { // else the run was repeated, without a stopped rank
			Expect(stopped).To(Equal(1), "%+v", res.Ranks)
		}
		s.expectNoLeaks()
	})
})

var _ = Describe("a program in the hosts of a fabric", func() {
	var s *sandbox
	BeforeEach(func() {
		needNamespaces()
		s = newSandbox()
	})
	// onRank1 runs script on rank 1; the other ranks sleep.
	onRank1 := func(script string, args ...string) outcome {
		GinkgoHelper()
		o := s.run(append(append([]string{"lab", "exec", "-n", "3"}, args...), "--", "sh", "-c",
			`[ $FABRICTEST_RANK = 1 ] || exec sleep 600; `+script)...)
		Expect(o.took).To(BeNumerically("<", waitTimeout), "the other ranks are stopped")
		return o
	}

	It("that segfaults is reported with its signal, which is the exit code", func() {
		o := onRank1("kill -SEGV $$")
		Expect(o.code).To(Equal(128+int(syscall.SIGSEGV)), o.String())
		Expect(lines(o.stderr)).To(HaveExactElements("fabrictest: host1 crashed: ended by SIGSEGV"))
	})

	It("that fails ends the others and decides the exit code", func() {
		o := onRank1("echo it is over; exit 7")
		Expect(o.code).To(Equal(7), o.String())
		Expect(o.stdout).To(Equal("host1: it is over\n"))
		Expect(lines(o.stderr)).To(HaveExactElements("fabrictest: host1 exited: exited with 7"))
	})

	It("that exits early with 0 does not end the others", func() {
		o := s.run("lab", "exec", "-n", "3", "--", "sh", "-c",
			`[ $FABRICTEST_RANK = 1 ] && exit 0; while [ -e wait ]; do sleep 0.05; done; echo done`)
		Expect(o.code).To(Equal(0), o.String())
		Expect(lines(o.stdout)).To(ConsistOf("host0: done", "host2: done"))
	})

	It("that fails does not end the others with --keep-going", func() {
		o := s.run("lab", "exec", "-n", "3", "--keep-going", "--", "sh", "-c",
			`[ $FABRICTEST_RANK = 1 ] && { touch failed; exit 3; }; until [ -e failed ]; do sleep 0.01; done; echo done`)
		Expect(o.code).To(Equal(3), o.String())
		Expect(lines(o.stdout)).To(ConsistOf("host0: done", "host2: done"))
	})

	It("that has children when it exits takes them down", func() {
		o := s.run("lab", "exec", "-n", "2", "--", "sh", "-c", "setsid sleep 600 & sleep 600 & exit 0")
		Expect(o.code).To(Equal(0), o.String())
		s.expectNoLeaks()
	})

	It("that floods its output neither stops the others nor fills the lab's memory", func() {
		slow()
		const flood = 32 << 20 // twice the limit
		counted := &tailCounter{}
		cmd := s.command("lab", "exec", "-n", "2", "--plain", "--", "sh", "-c", fmt.Sprintf(
			`[ $FABRICTEST_RANK = 1 ] && { yes "$(printf %%999s flood)" | head -c %d; exit 0; }; echo quiet`, flood))
		cmd.Stdout = counted
		r := s.start(cmd)
		peak := 0
		Eventually(func() bool {
			for _, p := range s.withRole(lab) {
				peak = max(peak, p.peakMiB())
			}
			return r.ended()
		}).Should(BeTrue())
		o := r.wait()
		Expect(o.code).To(Equal(0), o.String())
		Expect(counted.n).To(BeNumerically("<", flood))
		Expect(counted.n).To(BeNumerically(">", flood/4))
		Expect(counted.String()).To(MatchRegexp(`… cut, \d+ bytes more`))
		Expect(peak).To(And(BeNumerically(">", 0), BeNumerically("<", 150)), "MiB")
	})

	It("that is stopped by SIGSTOP still ends with Ctrl-C", func() {
		r := s.start(s.command("lab", "exec", "-n", "2", "--", "sleep", "600"))
		Eventually(func() int { return len(s.withRole(userProgram)) }).Should(Equal(2))
		s.recordNamespaces()
		for _, p := range s.withRole(userProgram) {
			Expect(syscall.Kill(p.pid, syscall.SIGSTOP)).To(Succeed())
		}
		began := time.Now()
		r.interrupt()
		o := r.wait()
		Expect(o.code).NotTo(Equal(0), o.String())
		Expect(time.Since(began)).To(BeNumerically("<", waitTimeout))
		s.expectNoLeaks()
	})
})

// tailCounter counts the octets written and keeps the last ones.
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
