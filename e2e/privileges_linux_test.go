//go:build e2e

package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/report"
)

var _ = Describe("without privileges and user namespaces", func() {
	var s *sandbox
	var run func(args ...string) outcome
	// reason is a part of the line that names the missing privilege.
	reason := "no network namespaces: "

	BeforeEach(func() {
		s = newSandbox()
		run = func(args ...string) outcome {
			GinkgoHelper()
			if errNoNamespaces != nil { // this host has none anyway
				return s.run(args...)
			}
			o := s.start(s.restricted([]string{noUserNamespaces, noCapabilities}, args...)).wait()
			Expect(o.code).NotTo(Equal(restrictFailed), o.String())
			return o
		}
		if errNoNamespaces == nil {
			reason = "no network namespaces: the limit user.max_user_namespaces is 0"
		}
	})

	It("runs in simulation and reports in one line why not in namespaces", func() {
		o := run("run", "pingpong", "--out", "out")
		Expect(o.code).To(Equal(0), o.String())
		Expect(o.stderr).To(BeEmpty())
		var reasons []string
		for _, l := range lines(o.stdout) {
			if strings.Contains(l, reason) {
				reasons = append(reasons, l)
			}
		}
		Expect(reasons).To(HaveLen(1), o.String())
		Expect(reasons[0]).To(HavePrefix("In simulation only: "))
		r := singleResult(s.result(s.path("work", "out")))
		Expect(r.Tier).To(Equal("sim"))
		Expect(r.Verdict).To(Equal(report.Passed))
	})

	It("skips scenarios with --on netns, and exits with 1", func() {
		o := run("run", "pingpong", "clean-rc", "--on", "netns", "--out", "out")
		Expect(o.code).To(Equal(1), o.String())
		Expect(lines(o.stderr)).To(HaveExactElements(
			"fabrictest: 2 of 2 could not be run on what --on asks for; 'fabrictest doctor' says how to get it"))
		run := s.result(s.path("work", "out"))
		Expect(run.Scenarios).To(HaveLen(2))
		for _, r := range run.Scenarios {
			Expect(r.Verdict).To(Equal(report.Skipped))
			Expect(r.Reason).To(ContainSubstring(reason))
		}
	})

	DescribeTable("reports the reason and the remedy where it needs a fabric", func(args ...string) {
		o := run(args...)
		Expect(o.code).To(Equal(1), o.String())
		Expect(o.stdout).To(BeEmpty())
		Expect(lines(o.stderr)).To(HaveLen(1))
		Expect(o.stderr).To(HavePrefix("fabrictest: " + reason))
		if errNoNamespaces == nil {
			Expect(o.stderr).To(ContainSubstring("as root: sysctl -w user.max_user_namespaces="))
		}
	},
		Entry("lab up", "lab", "up", "--lab", "no-namespaces"),
		Entry("lab exec -n", "lab", "exec", "-n", "2", "--", "true"),
	)

	It("is diagnosed by doctor", func() {
		o := run("doctor")
		Expect(o.code).To(Equal(1), o.String())
		Expect(o.stdout).To(ContainSubstring("Scenarios run in simulation only: " + reason))
		o = run("doctor", "--json")
		Expect(o.code).To(Equal(1))
		Expect(namespacesIn(o).State).To(Equal(netns.No))
	})
})

// namespacesIn returns the namespace capability in the output of doctor --json.
func namespacesIn(doctor outcome) netns.Capability {
	GinkgoHelper()
	var found []netns.Capability
	Expect(json.Unmarshal([]byte(doctor.stdout), &found)).To(Succeed(), doctor.String())
	i := slices.IndexFunc(found, func(c netns.Capability) bool { return strings.HasSuffix(c.Name, "namespaces") })
	Expect(i).To(BeNumerically(">=", 0), doctor.String())
	return found[i]
}

// nobody is an unprivileged user, for tests that are run by root.
var nobody = &syscall.Credential{Uid: 65534, Gid: 65534}

var _ = Describe("an unprivileged user", func() {
	var s *sandbox

	BeforeEach(func() {
		user := nobody
		if os.Geteuid() != 0 {
			user = nil // the tests run as one
		} else if err := os.Chown(GinkgoT().TempDir(), int(user.Uid), int(user.Gid)); err != nil {
			Skip("in this user namespace root is the only user: " + err.Error())
		}
		s = newSandboxFor(user)
		probe := s.start(s.command("doctor", "--json")).wait()
		if found := namespacesIn(probe); found.State == netns.No {
			Expect(probe.code).To(Equal(1))
			Skip(found.Reason)
		}
		Expect(probe.code).To(Equal(0))
	})

	It("runs scenarios on both tiers", func() {
		o := s.run("run", "pingpong", "clean-rc", "--on", "sim,netns")
		Expect(o.code).To(Equal(0), o.String())
		Expect(strings.Count(o.stdout, "\nok ")).To(Equal(4), o.String())
		o = s.run("replay", "last", "--all", "--on", "sim")
		Expect(o.code).To(Equal(0), o.String())
		Expect(strings.Count(o.stdout, "passed again, the same in every figure")).To(Equal(2))
	})

	It("has a lab that other users cannot access", func() {
		name := s.labName()
		o := s.run("lab", "up", "--lab", name)
		Expect(o.code).To(Equal(0), o.String())
		Expect(s.recordNamespaces()).To(BeNumerically(">=", 3))
		o = s.run("lab", "exec", "--lab", name, "host0", "--", "sh", "-c", "id -u; echo $FABRICTEST_HOST")
		Expect(o.code).To(Equal(0), o.String())
		Expect(lines(o.stdout)).To(HaveExactElements("0", "host0")) // root of the user namespace
		if s.user != nil {
			root := *s
			root.user = nil
			o = root.run("lab", "exec", "--lab", name, "host0", "--", "true")
			Expect(o.code).To(Equal(1))
			Expect(o.stderr).To(ContainSubstring("no lab called " + name))
		}
		o = s.run("lab", "down", name)
		Expect(o.code).To(Equal(0), o.String())
	})

	It("leaks nothing when its process is killed", func() {
		r := s.start(s.command("lab", "exec", "-n", "3", "--", "sleep", "600"))
		Eventually(func() int { return len(s.withRole(userProgram)) }).Should(Equal(3))
		Expect(s.recordNamespaces()).To(BeNumerically(">=", 4))
		r.signal(syscall.SIGKILL)
		Expect(r.wait().code).To(Equal(128 + int(syscall.SIGKILL)))
		s.expectNoLeaks()
	})
})

var _ = Describe("in a container", func() {
	const netAdmin = "12"
	// The defaults of container engines: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID,
	// SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW, SYS_CHROOT, MKNOD, AUDIT_WRITE and
	// SETFCAP; and NET_ADMIN.
	const defaults = noCapabilities + " 0 1 3 4 5 6 7 8 10 13 18 27 29 31 " + netAdmin
	var s *sandbox

	runInContainer := func(restrictions []string, args ...string) outcome {
		GinkgoHelper()
		o := s.start(s.restricted(append([]string{newContainer}, restrictions...), args...)).wait()
		Expect(o.code).NotTo(Equal(restrictFailed), o.String())
		return o
	}

	BeforeEach(func() {
		needNamespaces() // for the container
		s = newSandbox()
		if err := s.restricted([]string{newContainer}, "version").Run(); exitOf(err) == restrictFailed {
			Skip("cannot create a container: " + s.start(s.restricted([]string{newContainer}, "version")).wait().stderr)
		}
	})

	It("with the default capabilities and NET_ADMIN, runs on both tiers", func() {
		slow()
		o := runInContainer([]string{noNewPrivileges, defaults}, "doctor")
		Expect(o.code).To(Equal(0), o.String())
		Expect(o.stdout).To(ContainSubstring("Scenarios run in simulation and in network namespaces."))
		o = runInContainer([]string{noNewPrivileges, defaults}, "run", "clean-*", "--messages", "20", "--capture", "none", "--out", "out")
		Expect(o.code).To(Equal(0), o.String())
		tiers := map[string]int{}
		for _, r := range s.result(s.path("work", "out")).Scenarios {
			Expect(r.Verdict).To(Equal(report.Passed), r.Reason)
			tiers[r.Tier]++
		}
		Expect(tiers).To(And(HaveKey("sim"), HaveKey("netns")))
	})

	It("with NET_ADMIN alone, reports what is missing and runs in simulation", func() {
		bare := []string{noNewPrivileges, noCapabilities + " " + netAdmin}
		o := runInContainer(bare, "doctor")
		Expect(o.code).To(Equal(1), o.String())
		Expect(o.stdout).To(ContainSubstring("Scenarios run in simulation only: no network namespaces: "))
		o = runInContainer(bare, "run", "pingpong", "--out", "out")
		Expect(o.code).To(Equal(0), o.String())
		Expect(o.stdout).To(HavePrefix("In simulation only: no network namespaces: "))
	})
})

func exitOf(err error) int {
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.ExitCode()
	}
	return 0
}
