package e2e_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/netns"
)

// TestMain lets this binary be the one that makes a bad situation, and becomes
// fabrictest in it.
func TestMain(m *testing.M) {
	if steps := os.Getenv(situationMark); steps != "" {
		fmt.Fprintln(os.Stderr, "situation:", enter(strings.Split(steps, "\n"), os.Args[1:]))
		os.Exit(situationFailed)
	}
	switch os.Getenv(programMark) {
	case "open":
		os.Exit(openTwice())
	case "links":
		os.Exit(printLinks())
	}
	os.Exit(m.Run())
}

// programMark has this binary be a program for the hosts of a fabric: the one that the
// value names.
const programMark = "FABRICTEST_E2E_PROGRAM"

// openTwice opens the first NIC of its host, as a program does that finds another
// at work there.
func openTwice() int {
	host, err := nics.FromEnv()
	if err != nil {
		fmt.Println("environment:", err)
		return 3
	}
	dev, err := host.NICs[0].Open()
	if err != nil {
		fmt.Println("first:", err)
		return 4
	}
	defer dev.Close()
	again, err := host.NICs[0].Open()
	if err != nil {
		fmt.Println("second:", err)
		return 5
	}
	again.Close()
	return 0
}

// printLinks prints which interfaces of its host have a link. The program ip may not be
// installed.
func printLinks() int {
	all, err := net.Interfaces()
	if err != nil {
		fmt.Println(err)
		return 3
	}
	for _, i := range all {
		fmt.Println(i.Name, i.Flags&net.FlagRunning != 0)
	}
	return 0
}

func TestBadTimes(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	RunSpecs(t, "github.com/fabrictest/fabrictest/e2e")
}

// patience is how long anything may take that should take no time: the machine
// may be busy with other tests.
const patience = time.Minute

// binaryVariable names a fabrictest to test in the place of one that is built.
const binaryVariable = "FABRICTEST_BINARY"

var (
	built           string // the program
	suiteDir        string // with it, and the folders of all specs
	errNoNamespaces error  // why there are none; nil if there are
)

var _ = SynchronizedBeforeSuite(func() []byte {
	dir, err := os.MkdirTemp("", "fabrictest-e2e-")
	Expect(err).NotTo(HaveOccurred())
	program := filepath.Join(dir, "fabrictest")
	build := exec.Command("go", "build", "-ldflags=-w", "-o", program, "../cmd/fabrictest")
	if given := os.Getenv(binaryVariable); given != "" {
		build = exec.Command("cp", given, program)
	}
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	// Others than the user who runs the tests start it too.
	Expect(os.Chmod(dir, 0o755)).To(Succeed())
	Expect(os.Chmod(program, 0o755)).To(Succeed())
	return []byte(dir)
}, func(dir []byte) {
	suiteDir = string(dir)
	built = filepath.Join(suiteDir, "fabrictest")
	errNoNamespaces = netns.Available()
})

var _ = SynchronizedAfterSuite(func() {}, func() { os.RemoveAll(suiteDir) })

// needNamespaces skips a spec with the machine's own reason.
func needNamespaces() {
	GinkgoHelper()
	if errNoNamespaces != nil {
		Skip(errNoNamespaces.Error())
	}
}

// slow marks what -short leaves out.
func slow() {
	GinkgoHelper()
	if testing.Short() {
		Skip("it takes seconds: run without -short")
	}
}
