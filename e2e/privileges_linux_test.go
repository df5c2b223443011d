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
	var s *stage
	var run func(args ...string) outcome
	// reason is a part of the one line that says what is missing.
	reason := "no network namespaces: "

	BeforeEach(func() {
		s = newStage()
		run = func(args ...string) outcome {
			GinkgoHelper()
			if errNoNamespaces != nil { // the machine is in this situation as it is
				return s.run(args...)
			}
			o := s.start(s.in([]string{noUserNamespaces, noCapabilities}, args...)).wait()
			Expect(o.code).NotTo(Equal(situationFailed), o.String())
			return o
		}
		if errNoNamespaces == nil {
			reason = "no network namespaces: the limit user.max_user_namespaces is 0"
		}
	})

	It("runs in simulation and says in one line why not in namespaces", func() {
		o := run("run", "pingpong", "--out", "out")
		Expect(o.code).To(Equal(0), o.String())
		Expect(o.stderr).To(BeEmpty())
		var said []string
		for _, l := range lines(o.stdout) {
			if strings.Contains(l, reason) {
				said = append(said, l)
			}
		}
		Expect(said).To(HaveLen(1), o.String())
		Expect(said[0]).To(HavePrefix("In simulation only: "))
		r := only(s.result(s.path("work", "out")))
		Expect(r.Tier).To(Equal("sim"))
		Expect(r.Verdict).To(Equal(report.Passed))
	})

	It("skips what is to run in namespaces by name, and does not call that a success", func() {
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

	DescribeTable("says the reason and the cure where it needs a fabric", func(args ...string) {
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

	It("is diagnosed", func() {
		o := run("doctor")
		Expect(o.code).To(Equal(1), o.String())
		Expect(o.stdout).To(ContainSubstring("Scenarios run in simulation only: " + reason))
		o = run("doctor", "--json")
		Expect(o.code).To(Equal(1))
		Expect(namespacesIn(o).State).To(Equal(netns.No))
	})
})

// namespacesIn is what doctor --json says of them.
func namespacesIn(doctor outcome) netns.Capability {
	GinkgoHelper()
	var found []netns.Capability
	Expect(json.Unmarshal([]byte(doctor.stdout), &found)).To(Succeed(), doctor.String())
	i := slices.IndexFunc(found, func(c netns.Capability) bool { return strings.HasSuffix(c.Name, "namespaces") })
	Expect(i).To(BeNumerically(">=", 0), doctor.String())
	return found[i]
}

// nobody is an ordinary user, for tests that are run by root.
var nobody = &syscall.Credential{Uid: 65534, Gid: 65534}

var _ = Describe("an ordinary user", func() {
	var s *stage

	BeforeEach(func() {
		who := nobody
		if os.Geteuid() != 0 {
			who = nil // we are one
		} else if err := os.Chown(GinkgoT().TempDir(), int(who.Uid), int(who.Gid)); err != nil {
			Skip("in this user namespace root is the only user: " + err.Error())
		}
		s = newStageFor(who)
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

	It("has a lab of its own, which another user neither sees nor disturbs", func() {
		name := s.labName()
		o := s.run("lab", "up", "--lab", name)
		Expect(o.code).To(Equal(0), o.String())
		Expect(s.noteNamespaces()).To(BeNumerically(">=", 3))
		o = s.run("lab", "exec", "--lab", name, "host0", "--", "sh", "-c", "id -u; echo $FABRICTEST_HOST")
		Expect(o.code).To(Equal(0), o.String())
		Expect(lines(o.stdout)).To(HaveExactElements("0", "host0")) // root in there
		if s.who != nil {
			root := *s
			root.who = nil
			o = root.run("lab", "exec", "--lab", name, "host0", "--", "true")
			Expect(o.code).To(Equal(1))
			Expect(o.stderr).To(ContainSubstring("no lab called " + name))
		}
		o = s.run("lab", "down", name)
		Expect(o.code).To(Equal(0), o.String())
	})

	It("leaves nothing behind when it is killed", func() {
		r := s.start(s.command("lab", "exec", "-n", "3", "--", "sleep", "600"))
		Eventually(func() int { return len(s.with(other)) }).Should(Equal(3))
		Expect(s.noteNamespaces()).To(BeNumerically(">=", 4))
		r.signal(syscall.SIGKILL)
		Expect(r.wait().code).To(Equal(128 + int(syscall.SIGKILL)))
		s.expectNothingRemains()
	})
})

var _ = Describe("in a container", func() {
	const netAdmin = "12"
	// What engines give by default: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID,
	// SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW, SYS_CHROOT, MKNOD, AUDIT_WRITE and
	// SETFCAP; and NET_ADMIN, which is asked for.
	const usual = noCapabilities + " 0 1 3 4 5 6 7 8 10 13 18 27 29 31 " + netAdmin
	var s *stage

	contained := func(steps []string, args ...string) outcome {
		GinkgoHelper()
		o := s.start(s.in(append([]string{newContainer}, steps...), args...)).wait()
		Expect(o.code).NotTo(Equal(situationFailed), o.String())
		return o
	}

	BeforeEach(func() {
		needNamespaces() // a container is made of them
		s = newStage()
		if err := s.in([]string{newContainer}, "version").Run(); exitOf(err) == situationFailed {
			Skip("a container cannot be made here: " + s.start(s.in([]string{newContainer}, "version")).wait().stderr)
		}
	})

	It("with the usual rights and NET_ADMIN, runs on both tiers", func() {
		slow()
		o := contained([]string{noNewPrivileges, usual}, "doctor")
		Expect(o.code).To(Equal(0), o.String())
		Expect(o.stdout).To(ContainSubstring("Scenarios run in simulation and in network namespaces."))
		o = contained([]string{noNewPrivileges, usual}, "run", "clean-*", "--messages", "20", "--capture", "none", "--out", "out")
		Expect(o.code).To(Equal(0), o.String())
		tiers := map[string]int{}
		for _, r := range s.result(s.path("work", "out")).Scenarios {
			Expect(r.Verdict).To(Equal(report.Passed), r.Reason)
			tiers[r.Tier]++
		}
		Expect(tiers).To(And(HaveKey("sim"), HaveKey("netns")))
	})

	It("with nothing but NET_ADMIN, says what it lacks and runs in simulation", func() {
		bare := []string{noNewPrivileges, noCapabilities + " " + netAdmin}
		o := contained(bare, "doctor")
		Expect(o.code).To(Equal(1), o.String())
		Expect(o.stdout).To(ContainSubstring("Scenarios run in simulation only: no network namespaces: "))
		o = contained(bare, "run", "pingpong", "--out", "out")
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
