package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fabrictest/fabrictest/netns"
)

// TestMain lets this binary be the one that makes a bad situation, and becomes
// fabrictest in it.
func TestMain(m *testing.M) {
	if steps := os.Getenv(situationMark); steps != "" {
		fmt.Fprintln(os.Stderr, "situation:", enter(strings.Split(steps, "\n"), os.Args[1:]))
		os.Exit(situationFailed)
	}
	os.Exit(m.Run())
}

func TestBadTimes(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	RunSpecs(t, "github.com/fabrictest/fabrictest/e2e")
}

// patience is how long anything may take that should take no time: the machine
// may be busy with other tests.
const patience = 20 * time.Second

var (
	built        string // the program
	suiteDir     string // with it, and the folders of all specs
	noNamespaces error  // why there are none; nil if there are
)

var _ = SynchronizedBeforeSuite(func() []byte {
	dir, err := os.MkdirTemp("", "fabrictest-e2e-")
	Expect(err).NotTo(HaveOccurred())
	program := filepath.Join(dir, "fabrictest")
	out, err := exec.Command("go", "build", "-o", program, "../cmd/fabrictest").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	// Others than the user who runs the tests start it too.
	Expect(os.Chmod(dir, 0o755)).To(Succeed())
	Expect(os.Chmod(program, 0o755)).To(Succeed())
	return []byte(dir)
}, func(dir []byte) {
	suiteDir = string(dir)
	built = filepath.Join(suiteDir, "fabrictest")
	noNamespaces = netns.Available()
})

var _ = SynchronizedAfterSuite(func() {}, func() { os.RemoveAll(suiteDir) })

// needNamespaces skips a spec with the machine's own reason.
func needNamespaces() {
	GinkgoHelper()
	if noNamespaces != nil {
		Skip(noNamespaces.Error())
	}
}

// slow marks what -short leaves out.
func slow() {
	GinkgoHelper()
	if testing.Short() {
		Skip("it takes seconds: run without -short")
	}
}
