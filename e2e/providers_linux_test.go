//go:build e2e

package e2e_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fabrictest/fabrictest/report"
)

var _ = Describe("scenarios with other NICs", func() {
	var s *sandbox
	BeforeEach(func() {
		needNamespaces()
		s = newSandbox()
	})

	It("run over the kernel's TCP, and skip what soft-iWARP does not support", func() {
		o := s.run("run", "stream-write", "calls-reorder", "clean-xrc", "--on", "netns", "--provider", "softiwarp", "--capture", "all", "--out", "out")
		Expect(o.code).To(Equal(0), o.String())
		Expect(o.stderr).To(BeEmpty())
		Expect(o.stdout).To(ContainSubstring("Skipped 1: soft-iWARP has no xrc"))
		run := s.result(s.path("work", "out"))
		Expect(run.Scenarios).To(HaveLen(3))
		for _, r := range run.Scenarios {
			if r.Name == "clean-xrc" {
				Expect(r.Verdict).To(Equal(report.Skipped))
				continue
			}
			Expect(r.Verdict).To(Equal(report.Passed), r.Reason)
			Expect(r.Ranks[0].Counters).To(HaveKey("tcp_sent_octets"))
			Expect(r.Files).NotTo(BeEmpty())
		}
	})

	It("run over datagram-iWARP, and skip what needs connections", func() {
		o := s.run("run", "stream-write", "halo-loss", "clean-ud", "clean-rc", "--on", "netns", "--provider", "dgiwarp", "--capture", "all", "--out", "out")
		Expect(o.code).To(Equal(0), o.String())
		Expect(o.stderr).To(BeEmpty())
		Expect(o.stdout).To(ContainSubstring("Skipped 1: datagram-iWARP has no rc"))
		run := s.result(s.path("work", "out"))
		Expect(run.Scenarios).To(HaveLen(4))
		for _, r := range run.Scenarios {
			Expect(r.Provider).To(Equal("dgiwarp"))
			if r.Name == "clean-rc" {
				Expect(r.Verdict).To(Equal(report.Skipped))
				continue
			}
			Expect(r.Verdict).To(Equal(report.Passed), r.Reason)
			if r.Name == "clean-ud" {
				Expect(r.Ranks[0].Counters).NotTo(HaveKey("rd_sent_data"))
			} else {
				Expect(r.Ranks[0].Counters).To(HaveKey("rd_sent_data"))
			}
			Expect(r.Files).NotTo(BeEmpty())
		}
	})

	It("detect a stream corrupted with valid TCP checksums, and leak nothing", func() {
		o := s.run("run", "iwarp-corrupt", "iwarp-killed", "--on", "netns", "--capture", "none", "--out", "out")
		Expect(o.code).To(Equal(0), o.String())
		for _, r := range s.result(s.path("work", "out")).Scenarios {
			Expect(r.Verdict).To(Equal(report.Passed), r.Reason)
		}
	})
})
