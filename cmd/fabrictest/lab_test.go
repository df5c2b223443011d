package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/live"
	"github.com/fabrictest/fabrictest/netns"
)

// shell calls the program as a process of its own: what it starts has its
// descriptors.
func shell(t *testing.T, stdin string, args ...string) (code int, out string) {
	t.Helper()
	cmd := exec.Command(testProgram(t), args...)
	var b bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &b, &b
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), b.String()
}

// testProgram is the test binary under a name that makes it the program.
func testProgram(t *testing.T) string {
	t.Helper()
	self := must.Get(os.Executable())(t)
	name := filepath.Join(t.TempDir(), "fabrictest")
	must.Do(t, os.Symlink(self, name))
	return name
}

func needNamespaces(t *testing.T) {
	t.Helper()
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
}

func TestLabStaysUpUntilItIsTakenDown(t *testing.T) {
	needNamespaces(t)
	name := fmt.Sprintf("test-%d", os.Getpid())
	if code, out := shell(t, "", "lab", "up", "--lab", name, "--hosts", "3"); code != exitOK || !strings.Contains(out, "host2  rdma0") {
		t.Fatalf("up: exit code %d\n%s", code, out)
	}
	defer live.Down(context.Background(), name)
	if code, out := shell(t, "", "lab", "up", "--lab", name); code == exitOK || !strings.Contains(out, "is up already") {
		t.Errorf("up a second time: exit code %d\n%s", code, out)
	}
	for _, c := range []struct {
		stdin, args, want string
		code              int
	}{
		{"", "lab exec --lab NAME host1 -- sh -c 'echo $FABRICTEST_HOST'", "host1\n", 0},
		{"some words", "lab exec --lab NAME host0 -- cat", "some words", 0},
		{"", "lab exec --lab NAME host0 -- sh -c 'exit 9'", "", 9},
		{"", "lab exec --lab NAME host0 -- sh -c 'kill -9 $$'", "", 128 + 9},
		{"", "lab exec --lab NAME host7 -- true", "no host \"host7\": there are host0 to host2", exitFailed},
		{"", "lab exec --lab NAME host0 -- no-such-program", "no-such-program", exitUsage},
		{"", "lab set --lab NAME host1 loss=5% way=out", "", 0},
		{"", "lab set --lab NAME host1 los=5%", "fabrictest: los=5%: unknown key; did you mean loss?\n", exitUsage},
		{"", "lab set --lab NAME host9 loss=5%", "fabrictest: host9: no port matches", exitUsage},
		{"", "lab set --lab NAME host1 loss=lots", "fabrictest: loss=lots: ", exitUsage},
		{"", "__complete lab exec --lab NAME ho", "host0\nhost1\nhost2\n:4\n", 0},
		{"", "__complete lab set --lab NAME host1", "host1\nhost1/rdma0\n:4\n", 0},
		{"", "__complete lab set --lab NAME host1 d", "down\nduplicate=\nduplicate_delay=\ndelay=\n:6\n", 0},
		{"", "lab set --lab NAME host1/rdma0 down", "", 0},
		{"", "lab set --lab NAME host1 up", "", 0},
		{"", "lab set --lab NAME host* clean", "", 0},
		{"", "lab list", name + " 3 hosts 0 programs", 0},
	} {
		code, out := shell(t, c.stdin, words(strings.ReplaceAll(c.args, "NAME", name))...)
		if c.args == "lab list" {
			out = strings.Join(strings.Fields(out), " ") // the columns are as wide as the labs of other tests need
		}
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d\n%s\nwant %d and %q", c.args, code, out, c.code, c.want)
		}
	}
	if code, out := shell(t, "", "lab", "down", name); code != exitOK {
		t.Errorf("down: exit code %d\n%s", code, out)
	}
	if names, err := live.List(t.Context()); err != nil || strings.Contains(strings.Join(names, " "), name) {
		t.Errorf("after down there are %v, %v", names, err)
	}
}

// words splits as a shell does, single quotes only.
func words(line string) (all []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}

// A program started by lab exec is killed when the command dies.
func TestExecKillsProgramWhenCommandDies(t *testing.T) {
	needNamespaces(t)
	name := fmt.Sprintf("test-caller-%d", os.Getpid())
	if code, out := shell(t, "", "lab", "up", "--lab", name); code != exitOK {
		t.Fatalf("up: exit code %d\n%s", code, out)
	}
	defer live.Down(context.Background(), name)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, testProgram(t), "lab", "exec", "--lab", name, "host0", "--", "sleep", "1000")
	must.Do(t, cmd.Start())
	await(t, "the program runs", func() bool { info, err := live.Query(t.Context(), name); return err == nil && info.Programs == 1 })
	cancel()
	_ = cmd.Wait() // it was killed
	await(t, "the program is gone", func() bool { info, err := live.Query(t.Context(), name); return err == nil && info.Programs == 0 })
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestExecMakesAFabricForOneProgram(t *testing.T) {
	needNamespaces(t)
	code, out := shell(t, "", "lab", "exec", "-n", "3", "--", "sh", "-c", `echo "$FABRICTEST_RANK of $FABRICTEST_SIZE at $FABRICTEST_RDMA0_IPV6"`)
	for _, want := range []string{"host0: 0 of 3 at fd", "host2: 2 of 3 at fd"} {
		if code != exitOK || !strings.Contains(out, want) {
			t.Errorf("exit code %d\n%s\nwant %q", code, out, want)
		}
	}
	if code, out := shell(t, "", "lab", "exec", "-n", "2", "--plain", "--keep-going", "--", "sh", "-c", `exit $((FABRICTEST_RANK * 5))`); code != 5 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// A lab that does not answer is listed, and keeps nobody.
func TestLabsListsTheSilent(t *testing.T) {
	needNamespaces(t)
	t.Parallel() // it is asleep for as long as labs waits
	name := fmt.Sprintf("test-silent-%d", os.Getpid())
	if code, out := shell(t, "", "lab", "up", "--lab", name, "--direct"); code != exitOK {
		t.Fatalf("up: exit code %d\n%s", code, out)
	}
	defer live.Down(context.Background(), name)
	info := must.Get(live.Query(t.Context(), name))(t)
	must.Do(t, syscall.Kill(info.PID, syscall.SIGSTOP))
	defer syscall.Kill(info.PID, syscall.SIGCONT)
	await(t, "the lab is stopped", func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", info.PID))
		return strings.Contains(string(stat), ") T ")
	})
	want := fmt.Sprintf("process %d\n", info.PID)
	began := time.Now()
	code, out := shell(t, "", "lab", "list")
	if code != exitOK || !strings.Contains(out, name+"  does not answer") || !strings.Contains(out, want) || time.Since(began) > 2*live.QueryAllTimeout {
		t.Errorf("exit code %d after %v\n%s", code, time.Since(began), out)
	}
}
