//go:build e2e

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fabrictest/fabrictest/report"
)

var _ = Describe("an interrupted run", func() {
	var s *sandbox
	BeforeEach(func() { s = newSandbox() })

	for _, how := range []struct {
		name string
		do   func(*running)
		code int
	}{
		{"Ctrl-C", (*running).interrupt, 130},
		{"SIGTERM", func(r *running) { r.signal(syscall.SIGTERM) }, 143},
	} {
		It("in simulation writes a report: "+how.name, func() {
			file := s.write("endless.yaml", endless("600s"))
			// The first scenario ends before the signal; the second is interrupted.
			r := s.start(s.command("run", "pingpong", file, "--on", "sim", "--capture", "none", "--out", "out"))
			Eventually(r.out.String).Should(ContainSubstring("ok      pingpong"))
			how.do(r)
			o := r.wait()
			Expect(o.code).To(Equal(how.code), o.String())
			Expect(lines(o.stderr)).To(HaveExactElements("fabrictest: interrupted: 1 of 2 had ended"))
			run := s.result(s.path("work", "out"))
			Expect(run.Scenarios).To(HaveLen(2))
			Expect(run.Scenarios[0].Verdict).To(Equal(report.Passed))
			Expect(run.Scenarios[1].Verdict).To(Equal(report.Broken))
			Expect(run.Scenarios[1].Reason).To(HavePrefix("interrupted at "))
		})

		It("in namespaces writes a report with the operation of each rank: "+how.name, func() {
			needNamespaces()
			r, _ := s.startEndless("60s")
			how.do(r)
			o := r.wait()
			Expect(o.code).To(Equal(how.code), o.String())
			Expect(lines(o.stderr)).To(HaveExactElements("fabrictest: interrupted: 0 of 1 had ended"))
			res := singleResult(s.result(s.path("work", "out")))
			Expect(res.Verdict).To(Equal(report.Broken))
			Expect(res.Reason).To(HavePrefix("interrupted at "))
			Expect(res.Ranks).To(HaveLen(3))
			for _, k := range res.Ranks {
				Expect(k.Waiting).NotTo(BeEmpty())
			}
			s.expectNoLeaks()
		})
	}

	It("that is interrupted twice ends at once, and leaks nothing", func() {
		needNamespaces()
		r, ranks := s.startEndless("60s")
		for _, p := range ranks { // so that a graceful end takes long
			Expect(syscall.Kill(p.pid, syscall.SIGSTOP)).To(Succeed())
		}
		r.signal(syscall.SIGINT)
		// A second signal while the first is pending would be lost.
		Eventually(func() bool { return pending(r.Process.Pid, syscall.SIGINT) }).Should(BeFalse())
		Eventually(func() bool { r.Process.Signal(syscall.SIGINT); return r.ended() }).Should(BeTrue())
		Expect(r.wait().code).To(Equal(128 + int(syscall.SIGINT)))
		s.expectNoLeaks()
	})

	It("through exec -n ends the programs", func() {
		needNamespaces()
		r := s.start(s.command("lab", "exec", "-n", "3", "--", "sh", "-c", `trap 'echo terminated; exit 5' TERM; echo ready; while :; do sleep 0.01; done`))
		Eventually(r.out.String).Should(And(ContainSubstring("host0: ready"), ContainSubstring("host1: ready"), ContainSubstring("host2: ready")))
		s.recordNamespaces()
		r.interrupt()
		o := r.wait()
		Expect(o.code).To(Equal(5), o.String())
		Expect(o.stdout).To(And(ContainSubstring("host0: terminated"), ContainSubstring("host1: terminated"), ContainSubstring("host2: terminated")))
		s.expectNoLeaks()
	})
})

// ended reports whether the program has ended.
func (r *running) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// pending reports whether a signal of a process is pending.
func pending(pid int, sig syscall.Signal) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	var mask uint64
	for _, l := range lines(string(status)) {
		if _, err := fmt.Sscanf(l, "ShdPnd:\t%x", &mask); err == nil {
			break
		}
	}
	return mask&(1<<(sig-1)) != 0
}

var _ = Describe("kill -9 leaks nothing", func() {
	var s *sandbox
	BeforeEach(func() {
		needNamespaces()
		s = newSandbox()
	})

	// kill kills a process with a role.
	kill := func(role string) {
		GinkgoHelper()
		found := s.withRole(role)
		Expect(found).NotTo(BeEmpty(), "no %s among %v", role, s.processes())
		Expect(syscall.Kill(found[0].pid, syscall.SIGKILL)).To(Succeed())
	}

	DescribeTable("of a part of a run", func(role string, code int, reason string) {
		r, _ := s.startEndless("60s")
		kill(role)
		o := r.wait()
		Expect(o.code).To(Equal(code), o.String())
		if reason != "" {
			res := singleResult(s.result(s.path("work", "out")))
			Expect(res.Verdict).To(Equal(report.Broken))
			Expect(res.Reason).To(ContainSubstring(reason))
		} else {
			// It was killed before it wrote a report: there is not even an unfinished one.
			Expect(s.path("work", "out", "result.json")).NotTo(BeAnExistingFile())
			Expect(unfinishedFiles(s.path("work", "out"))).To(BeEmpty())
		}
		s.expectNoLeaks()
	},
		Entry("the command itself", cli, 128+9, ""),
		Entry("the init process of the namespaces", initProcess, 1, "the lab process ended without a result: signal: killed"),
		Entry("the lab process", lab, 1, "the lab process ended without a result: exit status 137"),
	)

	It("of the guard, which has no effect while the launcher lives", func() {
		r := s.start(s.command("lab", "exec", "-n", "2", "--", "sh", "-c", "until [ -e go ]; do sleep 0.01; done; echo done"))
		Eventually(func() int { return len(s.withRole(guard)) }).Should(Equal(1))
		kill(guard)
		s.write("go", "")
		o := r.wait()
		Expect(o.code).To(Equal(0), o.String())
		Expect(lines(o.stdout)).To(ConsistOf("host0: done", "host1: done"))
	})

	DescribeTable("of a part of a lab that is up", func(role string) {
		name := s.labName()
		Expect(s.run("lab", "up", "--lab", name, "--hosts", "3").code).To(Equal(0))
		r := s.start(s.command("lab", "exec", "--lab", name, "host1", "--", "sh", "-c", "setsid sleep 600 & exec sleep 600"))
		Eventually(func() int { return len(s.withRole(userProgram)) }).Should(Equal(2))
		Expect(s.recordNamespaces()).To(BeNumerically(">=", 4))
		kill(role)
		o := r.wait()
		Expect(o.code).To(Equal(1), o.String())
		Expect(lines(o.stderr)).To(HaveExactElements("fabrictest: lab " + name + " went down"))
		s.expectNoLeaks()
		o = s.run("lab", "list")
		Expect(o.stdout).NotTo(ContainSubstring(name))
	},
		Entry("its process", lab),
		Entry("the init process of its namespaces", initProcess),
	)

	It("of exec ends its program, and not the lab", func() {
		name := s.labName()
		Expect(s.run("lab", "up", "--lab", name).code).To(Equal(0))
		s.recordNamespaces()
		r := s.start(s.command("lab", "exec", "--lab", name, "host0", "--", "sleep", "600"))
		Eventually(func() int { return len(s.withRole(userProgram)) }).Should(Equal(1))
		r.signal(syscall.SIGKILL)
		r.wait()
		Eventually(func() []process { return s.withRole(userProgram) }).Should(BeEmpty())
		Expect(s.run("lab", "exec", "--lab", name, "host0", "--", "true").code).To(Equal(0))
		Expect(s.run("lab", "down", name).code).To(Equal(0))
		s.expectNoLeaks()
	})

	It("of a run without a result makes replay and the next run ignore its folder", func() {
		r := s.start(s.command("run", s.write("endless.yaml", endless("600s")), "--on", "sim", "--capture", "none"))
		runs := filepath.Join(s.home, ".cache", "fabrictest", "runs")
		Eventually(func() []string { all, _ := filepath.Glob(runs + "/*/scenarios/endless.yaml"); return all }).Should(HaveLen(1))
		r.signal(syscall.SIGKILL)
		r.wait()
		o := s.run("replay", "last")
		Expect(o.code).To(Equal(2), o.String())
		Expect(o.stderr).To(ContainSubstring("there is no run in " + runs))
		Expect(s.run("run", "pingpong", "--on", "sim", "--capture", "none").code).To(Equal(0))
		o = s.run("replay", "last", "--all")
		Expect(o.code).To(Equal(0), o.String())
		Expect(o.stdout).To(ContainSubstring("pingpong on sim: passed again"))
	})
})
