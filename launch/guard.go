package launch

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// The guard is a second process of this program that cleans up if the launcher is killed. It reads
// the process groups of ranks on stdin ("+pid" or "-pid") and kills them at EOF.
const (
	guardName = "fabrictest-guard"
	guardEnv  = "FABRICTEST_INTERNAL_GUARD"

	anyRank = -1 // for killStrays
)

// init runs the guard, which kills the ranks if the launcher dies, in the process that startGuard
// starts: a copy of this program. If main had to run the guard, a main that forgot to would start
// itself forever.
func init() {
	if groupID := os.Getenv(guardEnv); groupID != "" && os.Args[0] == guardName {
		guardMain(groupID, os.Stdin)
		os.Exit(0)
	}
}

// guardMain is the main function of the guard. Until the launcher exits, it reads lines: "+PID" for
// a process group that was started, and "-PID" for one that has ended. Then it kills those that are
// left, and the ranks' processes that left their process group.
func guardMain(groupID string, in io.Reader) {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	groups := map[int]bool{}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		digits, started := strings.CutPrefix(lines.Text(), "+")
		digits = strings.TrimPrefix(digits, "-")
		if pid, err := strconv.Atoi(digits); err == nil && pid > 1 { // kill(-1) would kill all processes
			groups[pid] = started
		}
	}
	for pid, alive := range groups {
		if alive {
			_ = unix.Kill(-pid, unix.SIGKILL)
		}
	}
	killStrays(groupID, anyRank)
}

// guard is the launcher's handle of the guard process.
type guard struct {
	cmd     *exec.Cmd
	groupID string // value of envGroup in all processes of the group

	mu   sync.Mutex
	pipe io.WriteCloser
}

// startGuard starts a guard, which kills all ranks if this process dies, with a random group ID.
func startGuard() (*guard, error) {
	g := &guard{groupID: rand.Text()}
	path, err := executablePath()
	if err != nil {
		return nil, err
	}
	g.cmd = &exec.Cmd{
		Path: path, Args: []string{guardName}, Dir: "/", Env: []string{guardEnv + "=" + g.groupID},
		// In a new session, the guard does not receive Ctrl-C of the terminal.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if g.pipe, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guard (%s): %w", path, err)
	}
	return g, nil
}

// add registers a process group with the guard, and remove unregisters it. Write errors are
// ignored: if the guard was killed, Pdeathsig remains.
func (g *guard) add(pid int)    { g.write("+%d\n", pid) }
func (g *guard) remove(pid int) { g.write("-%d\n", pid) }

func (g *guard) write(format string, pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _ = fmt.Fprintf(g.pipe, format, pid)
}

// stop kills the remaining processes of all ranks, and the guard.
func (g *guard) stop() {
	killStrays(g.groupID, anyRank)
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait() // also closes the pipe
}
