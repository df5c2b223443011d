//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/netns"
)

// TestMain runs this binary as a restricted fabrictest, as a program of a host, or as the tests.
func TestMain(m *testing.M) {
	if restrictions := os.Getenv(restrictVariable); restrictions != "" {
		fmt.Fprintln(os.Stderr, "restrict:", execRestricted(strings.Split(restrictions, "\n"), os.Args[1:]))
		os.Exit(restrictFailed)
	}
	switch os.Getenv(programVariable) {
	case "open":
		os.Exit(openTwice())
	case "links":
		os.Exit(printLinks())
	}
	if os.Getenv(claimsVariable) == "" { // Ginkgo rejects the flag
		testutil.SetParallel(shards)
	}
	os.Exit(m.Run())
}

// programVariable makes this binary run a program for the hosts of a fabric, named by the value.
const programVariable = "FABRICTEST_E2E_PROGRAM"

// openTwice opens the first NIC of its host twice, and prints the error.
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

// shards is the number of processes that share the specs: most specs wait for processes and
// timers, and a Ginkgo process runs one spec at a time.
const shards = 3

// claimsVariable is set in the processes of runShards. It names the folder with one file for each
// spec that a process has begun.
const claimsVariable = "FABRICTEST_E2E_CLAIMS"

func TestProgramAsProcess(t *testing.T) {
	if os.Getenv(claimsVariable) == "" {
		runShards(t)
		return
	}
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(waitTimeout)
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	RunSpecs(t, "github.com/fabrictest/fabrictest/e2e")
}

// runShards builds the program, and runs this test binary once for each shard.
func runShards(t *testing.T) {
	program := os.Getenv(binaryVariable)
	if program == "" {
		program = filepath.Join(t.TempDir(), "fabrictest")
		if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", program, "../cmd/fabrictest").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	claims := t.TempDir()
	t.Cleanup(func() { checkClaims(t, claims) })
	for shard := range shards {
		t.Run(strconv.Itoa(shard), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], os.Args[1:]...)
			cmd.Env = append(os.Environ(), claimsVariable+"="+claims, binaryVariable+"="+program)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			} else if testing.Verbose() {
				t.Logf("%s", out)
			}
		})
	}
}

// checkClaims fails the test unless some process ran each spec.
func checkClaims(t *testing.T, folder string) {
	want := string(must.Get(os.ReadFile(filepath.Join(folder, specCount)))(t))
	claimed := len(must.Get(os.ReadDir(folder))(t)) - 1
	if strconv.Itoa(claimed) != want {
		t.Errorf("%d of %s specs ran", claimed, want)
	}
}

// specCount is a file in the folder of claims with the number of specs.
const specCount = "count"

var _ = ReportBeforeSuite(func(r Report) {
	count := strconv.Itoa(r.PreRunStats.SpecsThatWillRun)
	Expect(os.WriteFile(filepath.Join(os.Getenv(claimsVariable), specCount), []byte(count), 0o600)).To(Succeed())
})

// The process that creates the file of a spec runs the spec.
var _ = BeforeEach(func() {
	hash := fnv.New64a()
	hash.Write([]byte(CurrentSpecReport().FullText()))
	f, err := os.OpenFile(filepath.Join(os.Getenv(claimsVariable), fmt.Sprintf("%x", hash.Sum64())), os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		Skip("another process runs this spec")
	}
	Expect(err).NotTo(HaveOccurred())
	Expect(f.Close()).To(Succeed())
})

// waitTimeout limits every wait. It is long, since other tests may use the CPUs.
const waitTimeout = time.Minute

// binaryVariable names the program to test; without it, TestProgramAsProcess builds one.
const binaryVariable = "FABRICTEST_BINARY"

var (
	built           string // path of the program
	suiteDir        string // contains the program, and the folders of all specs
	errNoNamespaces error  // why namespaces cannot be created; nil if they can
)

var _ = SynchronizedBeforeSuite(func() []byte {
	dir, err := os.MkdirTemp("", "fabrictest-e2e-")
	Expect(err).NotTo(HaveOccurred())
	program := filepath.Join(dir, "fabrictest")
	out, err := exec.Command("cp", os.Getenv(binaryVariable), program).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	// Other users than that of the tests execute it too.
	Expect(os.Chmod(dir, 0o755)).To(Succeed())
	Expect(os.Chmod(program, 0o755)).To(Succeed())
	return []byte(dir)
}, func(dir []byte) {
	suiteDir = string(dir)
	built = filepath.Join(suiteDir, "fabrictest")
	errNoNamespaces = netns.Available()
})

var _ = SynchronizedAfterSuite(func() {}, func() { os.RemoveAll(suiteDir) })

// needNamespaces skips the spec if the host does not support namespaces.
func needNamespaces() {
	GinkgoHelper()
	if errNoNamespaces != nil {
		Skip(errNoNamespaces.Error())
	}
}

// slow skips the spec with -short.
func slow() {
	GinkgoHelper()
	if testing.Short() {
		Skip("it takes seconds: run without -short")
	}
}
