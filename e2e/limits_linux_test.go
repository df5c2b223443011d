//go:build e2e

package e2e_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fabrictest/fabrictest/report"
)

var _ = Describe("a scenario that reaches its time limit", func() {
	for tier, limit := range map[string]string{"sim": "200 ms", "netns": "3 s"} {
		It("fails on "+tier+" and reports what each rank waits for", func() {
			if tier == "netns" {
				needNamespaces()
			}
			s := newSandbox()
			o := s.run("run", s.write("endless.yaml", endless(strings.ReplaceAll(limit, " ", ""))), "--on", tier, "--out", "out")
			res := singleResult(s.result(s.path("work", "out")))
			expectTimedOut(o, res)
			Expect(res.Reason).To(MatchRegexp("rank 0 on host0 did not end: the limit of " + strings.ReplaceAll(limit, " ", " ?") + " is reached"))
			Expect(res.Ranks).To(HaveLen(3))
			waits := `all-to-all|rank \d`
			if res.First != nil || res.Verdict == report.Starved {
				waits += "|not started" // other processes had the processors
			}
			for _, k := range res.Ranks {
				Expect(k.State).To(Equal("hung"))
				Expect(k.Waiting).To(MatchRegexp(waits), "the operation that it waits for")
				Expect(res.Detail).To(ContainSubstring(fmt.Sprintf("rank %d on %s hung", k.Rank, k.Host)))
			}
			// The captures contain the packets until the time limit.
			captures := 0
			for _, f := range res.Files {
				if f.Kind == "capture" {
					captures++
					Expect(packetsIn(s.path("work", "out", f.Path))).To(BeNumerically(">", 100))
				}
			}
			Expect(captures).To(Equal(map[string]int{"sim": 1, "netns": 3}[tier]))
		})
	}

	It("keeps the packets of an almost idle fabric", func() {
		needNamespaces()
		s := newSandbox()
		o := s.run("run", s.write("slow.yaml", `version: 1
name: slow
title: A message now and then
fabric: {kind: pair}
workload: {kind: stream, op: send, messages: 10000, bytes: 64, think: 100ms}
limit: 3s
`), "--on", "netns", "--out", "out")
		expectTimedOut(o, singleResult(s.result(s.path("work", "out"))))
		for _, host := range []string{"host0", "host1"} {
			Expect(packetsIn(s.path("work", "out", "slow-netns", host+".pcapng.gz"))).To(BeNumerically(">=", 6))
		}
	})
})

// expectTimedOut expects that a scenario failed at its time limit, or starved beside others.
func expectTimedOut(o outcome, r *report.Result) {
	GinkgoHelper()
	code := map[report.Verdict]int{report.Failed: 1, report.Starved: 3}
	Expect(code).To(HaveKey(r.Verdict), "%s", r.Reason)
	Expect(o.code).To(Equal(code[r.Verdict]), "%s", o)
}

// packetsIn counts the packets of a capture, which must be complete.
func packetsIn(name string) (n int) {
	GinkgoHelper()
	f, err := os.Open(name)
	Expect(err).NotTo(HaveOccurred())
	defer f.Close()
	z, err := gzip.NewReader(f)
	Expect(err).NotTo(HaveOccurred())
	in, err := pcapgo.NewNgReader(z, pcapgo.DefaultNgReaderOptions)
	Expect(err).NotTo(HaveOccurred())
	for {
		_, _, err := in.ZeroCopyReadPacketData()
		if errors.Is(err, io.EOF) {
			return n
		}
		Expect(err).NotTo(HaveOccurred(), "%s, after %d packets", name, n)
		n++
	}
}

var _ = Describe("a hostile scenario file", func() {
	nested := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	bomb := "version: 1\nname: bomb\ntitle: Laughs\na: &a [x, x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		c := string(rune('a' + i))
		bomb += fmt.Sprintf("%c: &%c [%s]\n", 'b'+i, 'b'+i, strings.TrimSuffix(strings.Repeat("*"+c+", ", 9), ", "))
	}
	const head = "version: 1\nname: bad\ntitle: Bad\n"
	const hugeHead = head + "description: "
	const work = "workload: {kind: all-to-all, messages: 10}\n"

	DescribeTable("is rejected at once, with file and line", func(text, position, message string) {
		s := newSandbox()
		s.write("bad.yaml", text)
		if text == hugeHead { // a sparse file of 100 MB
			Expect(os.Truncate(s.path("work", "bad.yaml"), 100_000_000)).To(Succeed())
		}
		cmd := s.command("run", "bad.yaml", "--on", "sim", "--out", "out")
		o := s.start(cmd).wait()
		Expect(o.code).To(Equal(2), o.String())
		Expect(o.stdout).To(BeEmpty())
		Expect(o.stderr).To(HavePrefix("fabrictest: bad.yaml:" + position))
		Expect(o.stderr).To(ContainSubstring(message))
		Expect(len(o.stderr)).To(BeNumerically("<", 8<<10), "the message is short enough to read")
		Expect(cmd.ProcessState.UserTime()).To(BeNumerically("<", 5*time.Second))
		Expect(s.path("work", "out")).NotTo(BeAnExistingFile())
	},
		Entry("aliases of aliases", bomb, "4", "anchors are not used in scenarios"),
		Entry("lists in lists in lists", head+"fabric: "+nested+"\n", "", ""),
		Entry("100 MB", hugeHead, "1", "the file is too large"),
		Entry("a billion hosts", head+"fabric: {kind: star, hosts: 1000000000}\n"+work, "4:29", "fabric.hosts: 1000000000 is not in 2 to 1024"),
		Entry("a number that overflows", head+"fabric: {kind: star, hosts: 99999999999999999999999}\n"+work, "4:", "fabric.hosts"),
		Entry("a key that does not exist", head+"fabric: {kind: pair}\nworkload: {kind: all-to-all, mesages: 10}\n", "5:30", "did you mean messages?"),
		Entry("the same key twice", head+"title: Again\nfabric: {kind: pair}\n"+work, "4", "title"),
		Entry("binary data", "version: 1\nname: \x00\xff\n", "1", ""),
		Entry("a name with a path out of the folder", strings.Replace(head, "bad", "../../bad", 1)+"fabric: {kind: pair}\n"+work, "2:", "name"),
		Entry("an empty file", "", "", ""),
	)
})
