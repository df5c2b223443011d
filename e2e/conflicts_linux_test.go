//go:build e2e

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fabrictest/fabrictest/report"
)

var _ = Describe("a conflict", func() {
	var s *sandbox
	BeforeEach(func() { s = newSandbox() })

	It("between labs of the same name leaves the first unchanged", func() {
		needNamespaces()
		name := s.labName()
		Expect(s.run("lab", "up", "--lab", name, "--hosts", "3").code).To(Equal(0))
		o := s.run("lab", "up", "--lab", name)
		Expect(o.code).To(Equal(1), o.String())
		Expect(lines(o.stderr)).To(HaveExactElements(
			"fabrictest: a lab of that name is up already: take it down with 'fabrictest lab down', or give another name with --lab"))
		Expect(s.run("lab", "exec", "--lab", name, "host2", "--", "true").code).To(Equal(0))
		Expect(s.run("lab", "down", name).code).To(Equal(0))
		o = s.run("lab", "down", name)
		Expect(o.code).To(Equal(1))
		Expect(o.stderr).To(ContainSubstring("no lab called " + name + " is up"))
		Expect(s.run("lab", "up", "--lab", name).code).To(Equal(0), "the name is free again")
		Expect(s.run("lab", "down", name).code).To(Equal(0))
	})

	It("between labs of the same name that start concurrently leaves one of them up", func() {
		needNamespaces()
		name := s.labName()
		var starts []*running
		for range 4 {
			starts = append(starts, s.start(s.command("lab", "up", "--lab", name)))
		}
		up := 0
		for _, r := range starts {
			switch o := r.wait(); o.code {
			case 0:
				up++
			default:
				Expect(o.code).To(Equal(1), o.String())
				Expect(o.stderr).To(ContainSubstring("a lab of that name is up already"))
			}
		}
		Expect(up).To(Equal(1))
		Expect(s.run("lab", "down", name).code).To(Equal(0))
	})

	It("between --out and a folder in use changes nothing in the folder", func() {
		Expect(os.Mkdir(s.path("work", "mine"), 0o755)).To(Succeed())
		s.write("mine/thesis.tex", "years of work")
		for _, out := range []string{"mine", "mine/thesis.tex"} {
			o := s.run("run", "pingpong", "--on", "sim", "--out", out)
			Expect(o.code).To(Equal(2), o.String())
			Expect(lines(o.stderr)[0]).To(HavePrefix("fabrictest: --out " + out + ": "))
		}
		entries, err := os.ReadDir(s.path("work", "mine"))
		Expect(err).NotTo(HaveOccurred())
		Expect(entries).To(HaveLen(1))
		Expect(os.ReadFile(s.path("work", "mine", "thesis.tex"))).To(Equal([]byte("years of work")))
	})

	It("between labs with the same addresses does not exist", func() {
		needNamespaces()
		a, b := "a-"+s.labName(), "b-"+s.labName()
		for _, name := range []string{a, b} {
			Expect(s.run("lab", "up", "--lab", name).code).To(Equal(0))
		}
		s.recordNamespaces()
		address := func(name string) string {
			GinkgoHelper()
			o := s.run("lab", "exec", "--lab", name, "host0", "--", "sh", "-c", "echo $FABRICTEST_RDMA0_IPV6 $FABRICTEST_RDMA0_IPV4")
			Expect(o.code).To(Equal(0), o.String())
			return o.stdout
		}
		Expect(address(a)).To(Equal(address(b)))
		inode := func(name string) string {
			GinkgoHelper()
			return s.run("lab", "exec", "--lab", name, "host0", "--", "readlink", "/proc/self/ns/net").stdout
		}
		Expect(inode(a)).NotTo(Equal(inode(b)))
		// A fault in one lab does not affect the other.
		Expect(s.run("lab", "set", "--lab", a, "host1", "down").code).To(Equal(0))
		self, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		links := func(name string) string {
			GinkgoHelper()
			o := s.run("lab", "exec", "--lab", name, "host1", "--", "env", programVariable+"=links", self)
			Expect(o.code).To(Equal(0), o.String())
			return o.stdout
		}
		Expect(links(a)).To(ContainSubstring("rdma0 false"))
		Expect(links(b)).To(ContainSubstring("rdma0 true"))
		Expect(s.run("lab", "down", a).code).To(Equal(0))
		Expect(links(b)).To(ContainSubstring("rdma0 true"))
		Expect(s.run("lab", "down", b).code).To(Equal(0))
	})

	It("between RoCE's port and a program outside of the lab does not exist", func() {
		needNamespaces()
		// In its own network namespace: tests of other packages use the port in this one.
		o := s.start(s.restricted([]string{portInUse}, "run", "pingpong", "--on", "netns", "--capture", "none")).wait()
		Expect(o.code).To(Equal(0), o.String())
	})

	It("between RoCE's port and another program of the same host is reported", func() {
		needNamespaces()
		self, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		s.env = []string{programVariable + "=open"}
		o := s.run("lab", "exec", "-n", "2", "--keep-going", "--", self)
		Expect(o.code).To(Equal(5), o.String())
		output := lines(o.stdout)
		Expect(output).To(HaveLen(2))
		for _, l := range output {
			Expect(l).To(MatchRegexp(`^host[01]: second: .*\[fd00:[0-9a-f:]+\]:4791.*address already in use`))
		}
	})

	It("between ten concurrent runs does not exist: each writes its own folder", func() {
		args := []string{"run", "pingpong", "clean-calls", "--capture", "none", "--messages", "50"}
		if errNoNamespaces != nil {
			args = append(args, "--on", "sim")
		}
		var starts []*running
		for range 10 {
			starts = append(starts, s.start(s.command(args...)))
		}
		for _, r := range starts {
			o := r.wait()
			Expect(o.code).To(Equal(0), o.String())
		}
		results, err := filepath.Glob(filepath.Join(s.home, ".cache", "fabrictest", "runs", "*", "result.json"))
		Expect(err).NotTo(HaveOccurred())
		Expect(results).To(HaveLen(10))
		var all sync.WaitGroup
		for _, name := range results {
			all.Go(func() {
				defer GinkgoRecover()
				for _, r := range s.result(filepath.Dir(name)).Scenarios {
					Expect(r.Verdict).To(Equal(report.Passed), r.Reason)
				}
			})
		}
		all.Wait()
		o := s.run("replay", "last", "--all", "--on", "sim")
		Expect(o.code).To(Equal(0), o.String())
		Expect(strings.Count(o.stdout, "passed again, the same in every figure")).To(Equal(2))
	})
})
