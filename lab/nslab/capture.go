package nslab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/softroce"
)

// capture is a file with the packets of a rank's NICs.
type capture struct {
	file    *os.File
	packets *pcaplink.Capture
}

// newCapture begins the capture that a rank is told to make; nil if none.
func newCapture(job *rankJob) (*capture, error) {
	if job.Capture == "" {
		return nil, nil
	}
	f, err := os.Create(job.Capture)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	c := &capture{f, pcaplink.NewCapture(f, pcaplink.Options{Epoch: time.Now(), Comment: job.Comment, FindID: softroce.FindIPID})}
	go c.saveWhenTold()
	return c, nil
}

// saveWhenTold brings to the file what there is when the process is told to end:
// of a run that hangs, the last packets matter most. It then ends of the signal,
// as it would have without us.
func (c *capture) saveWhenTold() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	<-told
	_ = c.packets.Flush() // nobody is left to be told of a full disk
	signal.Reset(syscall.SIGTERM)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}

// close completes the file.
func (c *capture) close() error {
	if c == nil {
		return nil
	}
	return complete(c.file, c.packets.Close())
}

// trimCapture repairs the file of a rank that did not live to complete it: one
// that was killed leaves half a packet at the end, and readers refuse the file. A
// rank that never came to write anything has none.
func trimCapture(name string) error {
	err := pcaplink.Trim(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// captureSuffix is what the name of a capture ends in while it is written.
const captureSuffix = ".pcapng"

// packCaptures compresses the captures in a folder, when nobody writes them any
// more.
func packCaptures(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*"+captureSuffix))
	errs := []error{err}
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && info.Size() > 0 {
			_, _, err := pcaplink.Pack(name, nil)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
