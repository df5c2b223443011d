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

// newCapture creates the capture file of a job; nil if it has none.
func newCapture(job *rankJob) (*capture, error) {
	if job.Capture == "" {
		return nil, nil
	}
	f, err := os.Create(job.Capture)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	c := &capture{f, pcaplink.NewCapture(f, pcaplink.Options{Epoch: time.Now(), Comment: job.Comment, FindIPID: softroce.FindIPID})}
	go c.flushOnSIGTERM()
	return c, nil
}

// flushOnSIGTERM flushes the file on SIGTERM, because the last packets of a run
// that hangs matter most. Then the signal ends the process.
func (c *capture) flushOnSIGTERM() {
	sigterm := make(chan os.Signal, 1)
	signal.Notify(sigterm, syscall.SIGTERM)
	<-sigterm
	_ = c.packets.Flush() // the process ends anyway
	signal.Reset(syscall.SIGTERM)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}

// close completes the file.
func (c *capture) close() error {
	if c == nil {
		return nil
	}
	return closeCapture(c.file, c.packets.Close())
}

// trimCapture removes an incomplete packet at the end of the capture of a killed
// rank. A rank that wrote nothing has no file.
func trimCapture(name string) error {
	err := pcaplink.Trim(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// captureSuffix is the suffix of uncompressed captures.
const captureSuffix = ".pcapng"

// packCaptures compresses the captures in a folder. Their writers must have ended.
func packCaptures(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*"+captureSuffix))
	errs := []error{err}
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && info.Size() > 0 {
			_, _, err := pcaplink.Compress(name, nil)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
