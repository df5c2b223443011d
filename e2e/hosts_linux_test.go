//go:build e2e

package e2e_test

import (
	"fmt"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("mpirun on several hosts", func() {
	var s *sandbox
	BeforeEach(func() {
		needNamespaces()
		s = newSandbox()
		o := s.run("lab", "up", "--lab", s.labName(), "--hosts", "2", "--direct")
		Expect(o.code).To(Equal(0), o.String())
	})
	AfterEach(func() {
		o := s.run("lab", "down", s.labName())
		Expect(o.code).To(Equal(0), o.String())
		s.expectNoLeaks()
	})

	// mpirun returns mpirun on the hosts of the lab, with 'lab exec' as the remote shell. The proxies have
	// sessions and environments in which neither the lab nor mpirun finds them, as on another machine.
	mpirun := func(args ...string) *running {
		launcher := fmt.Sprintf("%s lab exec --lab %s {host} -- env -u FABRICTEST_GROUP setsid -w", s.program, s.labName())
		return s.start(s.command(append([]string{
			"mpirun", "--launcher", launcher, "--hosts", "host0:2,host1:2", "--netdev", "rdma0", "--provider", "softiwarp",
		}, args...)...))
	}
	// endlessRing returns mpirun when its ranks are running.
	endlessRing := func() *running {
		r := mpirun("ring", "--iterations", "1000000000")
		Eventually(func() (busy int) {
			for _, p := range s.withRole(rank) {
				if p.ticks() >= 5 {
					busy++
				}
			}
			return busy
		}).Should(Equal(4), "running ranks")
		Expect(s.withRole(proxy)).To(HaveLen(2))
		Expect(s.withRole(remoteShell)).To(HaveLen(2))
		return r
	}
	expectNoRanks := func() {
		GinkgoHelper()
		for _, role := range []string{rank, proxy, remoteShell} {
			Eventually(func() []process { return s.withRole(role) }).Should(BeEmpty())
		}
	}

	It("prints the result", func() {
		o := mpirun("cg").wait()
		Expect(o.code).To(Equal(0), o.String())
		Expect(o.stdout).To(HavePrefix("cg, class T, 4 ranks: "))
		Expect(o.stderr).To(BeEmpty())
	})

	It("that is killed leaves no rank", func() {
		r := endlessRing()
		r.signal(syscall.SIGKILL)
		r.wait()
		expectNoRanks()
	})

	It("that is killed leaves no rank that is stopped", func() {
		r := endlessRing()
		for _, p := range s.withRole(rank) {
			Expect(syscall.Kill(p.pid, syscall.SIGSTOP)).To(Succeed())
		}
		r.signal(syscall.SIGKILL)
		r.wait()
		expectNoRanks()
	})

	It("that is interrupted ends all ranks", func() {
		r := endlessRing()
		r.interrupt()
		o := r.wait()
		Expect(o.code).To(Equal(128+int(syscall.SIGINT)), o.String())
		Expect(lines(o.stderr)).To(HaveExactElements("fabrictest: interrupted: interrupted"))
		expectNoRanks()
	})

	for _, role := range []string{remoteShell, proxy} {
		It("ends when a "+role+" is killed", func() {
			r := endlessRing()
			victim := s.withRole(role)[0]
			Expect(syscall.Kill(victim.pid, syscall.SIGKILL)).To(Succeed())
			o := r.wait()
			Expect(o.code).To(Equal(1), o.String())
			Expect(o.stderr).To(MatchRegexp(`fabrictest: host host[01]: %s (ended by SIGKILL|exited with \d+): the connection was lost\n`, s.program))
			expectNoRanks()
		})
	}
})
