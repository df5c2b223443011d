//go:build e2e

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("a full disk", func() {
	var s *sandbox
	BeforeEach(func() {
		needNamespaces() // to mount a small disk
		s = newSandbox()
	})

	// onDisk runs fabrictest on a disk of size bytes, and returns the files that it wrote. A shell
	// copies them to kept before the disk vanishes with its mount namespace.
	onDisk := func(size int, args ...string) (outcome, []string) {
		GinkgoHelper()
		disk, kept := s.path("work", "disk"), s.path("work", "kept")
		Expect(os.Mkdir(disk, 0o755)).To(Succeed())
		script := fmt.Sprintf(`"$0" "$@" --out %s/out; code=$?; cp -r %s %s; exit $code`, disk, disk, kept)
		cmd := s.restricted([]string{fmt.Sprint(tinyDisk, " ", disk, " ", size)}, args...)
		cmd.Args = append([]string{"restricted", "/bin/sh", "-c", script, s.program}, args...)
		o := s.start(cmd).wait()
		Expect(o.code).NotTo(Equal(restrictFailed), o.String())
		var files []string
		_ = filepath.WalkDir(kept, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				name, _ := filepath.Rel(filepath.Join(kept, "out"), path)
				files = append(files, name)
			}
			return nil
		})
		return o, files
	}

	for _, tier := range []string{"sim", "netns"} {
		Context("on "+tier, func() {
			It("without room for the capture breaks the run, and the report is written", func() {
				o, files := onDisk(128<<10, "run", "pingpong", "--on", tier)
				Expect(o.code).To(Equal(1), o.String())
				r := singleResult(s.result(s.path("work", "kept", "out")))
				Expect(r.Verdict).To(BeEquivalentTo("broken"))
				Expect(r.Reason).To(And(ContainSubstring("capture"), ContainSubstring(".pcapng: no space left on device")))
				Expect(files).To(ConsistOf("result.json", "junit.xml", "report.html", "scenarios/pingpong.yaml"))
				// The checks of the workload are still reported, and passed.
				Expect(r.Checks).NotTo(BeEmpty())
				for _, c := range r.Checks {
					Expect(c.OK).To(BeTrue(), "%s: want %s, got %s", c.Name, c.Want, c.Got)
				}
			})

			It("without room for report.html is reported, and the verdict is printed", func() {
				o, files := onDisk(24<<10, "run", "pingpong", "--on", tier, "--capture", "none")
				Expect(o.code).To(Equal(1), o.String())
				Expect(o.stdout).To(ContainSubstring("\nok      pingpong"))
				Expect(o.stdout).NotTo(ContainSubstring("Report:"))
				Expect(lines(o.stderr)).To(HaveLen(1))
				Expect(o.stderr).To(ContainSubstring("out/report.html was not written: no space left on device"))
				Expect(files).NotTo(ContainElement("report.html"))
				for _, f := range files {
					Expect(f).NotTo(HaveSuffix(".tmp"))
				}
			})

			It("without room for any file is reported, and the verdict is printed", func() {
				o, files := onDisk(8<<10, "run", "pingpong", "--on", tier, "--capture", "none")
				Expect(o.code).To(Equal(1), o.String())
				Expect(o.stdout).To(ContainSubstring("pingpong"))
				for _, name := range []string{"result.json", "junit.xml", "report.html"} {
					written := strings.Contains(strings.Join(files, " "), name)
					reported := strings.Contains(o.stderr, name+" was not written: no space left on device")
					Expect(reported).To(Equal(!written), "%s: %s", name, o)
				}
				Expect(files).NotTo(ContainElement("report.html"))
			})
		})
	}

	It("and a limit on the size of files have different messages", func() {
		o := s.start(s.restricted([]string{smallFiles + " 16384"}, "run", "pingpong", "--on", "sim", "--out", "out")).wait()
		Expect(o.code).To(Equal(1), o.String())
		Expect(o.stderr).To(ContainSubstring("report.html was not written: file too large"))
		Expect(unfinishedFiles(s.path("work", "out"))).To(BeEmpty())
		Expect(s.path("work", "out", "pingpong-sim", "capture.pcapng.gz")).NotTo(BeAnExistingFile())
	})
})
