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
	var s *stage
	BeforeEach(func() {
		needNamespaces() // to mount a small one
		s = newStage()
	})

	// onDisk runs on a disk of so many bytes, with a shell that looks at it before it
	// is gone with its mount namespace: it copies what it finds to kept.
	onDisk := func(size int, args ...string) (outcome, []string) {
		GinkgoHelper()
		disk, kept := s.path("work", "disk"), s.path("work", "kept")
		Expect(os.Mkdir(disk, 0o755)).To(Succeed())
		script := fmt.Sprintf(`"$0" "$@" --out %s/out; code=$?; cp -r %s %s; exit $code`, disk, disk, kept)
		cmd := s.in([]string{fmt.Sprint(tinyDisk, " ", disk, " ", size)}, args...)
		cmd.Args = append([]string{"situation", "/bin/sh", "-c", script, s.program}, args...)
		o := s.start(cmd).wait()
		Expect(o.code).NotTo(Equal(situationFailed), o.String())
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
			It("costs the capture: the run is broken, the report is there", func() {
				o, files := onDisk(128<<10, "run", "pingpong", "--on", tier)
				Expect(o.code).To(Equal(1), o.String())
				r := only(s.result(s.path("work", "kept", "out")))
				Expect(r.Verdict).To(BeEquivalentTo("broken"))
				Expect(r.Reason).To(And(ContainSubstring("capture"), ContainSubstring(".pcapng: no space left on device")))
				Expect(files).To(ConsistOf("result.json", "junit.xml", "report.html", "scenarios/pingpong.yaml"))
				// What the fabric did is known all the same, and held.
				Expect(r.Checks).NotTo(BeEmpty())
				for _, c := range r.Checks {
					Expect(c.OK).To(BeTrue(), "%s: want %s, got %s", c.Name, c.Want, c.Got)
				}
			})

			It("costs the page: what is not there is named, and the verdict is shown", func() {
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

			It("costs everything: the verdict is shown", func() {
				o, files := onDisk(8<<10, "run", "pingpong", "--on", tier, "--capture", "none")
				Expect(o.code).To(Equal(1), o.String())
				Expect(o.stdout).To(ContainSubstring("pingpong"))
				for _, name := range []string{"result.json", "junit.xml", "report.html"} {
					there := strings.Contains(strings.Join(files, " "), name)
					said := strings.Contains(o.stderr, name+" was not written: no space left on device")
					Expect(said).To(Equal(!there), "%s: %s", name, o)
				}
				Expect(files).NotTo(ContainElement("report.html"))
			})
		})
	}

	It("that is a limit on the size of files is said to be one", func() {
		o := s.start(s.in([]string{smallFiles + " 16384"}, "run", "pingpong", "--on", "sim", "--out", "out")).wait()
		Expect(o.code).To(Equal(1), o.String())
		Expect(o.stderr).To(ContainSubstring("report.html was not written: file too large"))
		Expect(halfFiles(s.path("work", "out"))).To(BeEmpty())
		Expect(s.path("work", "out", "pingpong-sim", "capture.pcapng.gz")).NotTo(BeAnExistingFile())
	})
})
