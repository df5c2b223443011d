//go:build ibverbs && linux && cgo

package ibv

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

func TestErrnoIsBothItselfAndAnErrorOfVerbs(t *testing.T) {
	for errno, want := range map[int]error{
		int(syscall.EINVAL): verbs.ErrInvalid, -int(syscall.EINVAL): verbs.ErrInvalid, int(syscall.ENOMEM): verbs.ErrNoMemory,
		int(syscall.EBUSY): verbs.ErrBusy, int(syscall.EPERM): verbs.ErrPerm, int(syscall.ENOENT): verbs.ErrNotFound,
		int(syscall.EOPNOTSUPP): verbs.ErrNotSupported, int(syscall.ETIMEDOUT): verbs.ErrTimeout,
	} {
		err := opError("modify_qp", "qp 0x11", errnoError(errno))
		if !errors.Is(err, want) || !errors.Is(err, syscall.Errno(max(errno, -errno))) {
			t.Errorf("errno %d: %v is not %v and the errno", errno, err, want)
		}
		if !strings.HasPrefix(err.Error(), "modify_qp qp 0x11: ") {
			t.Errorf("%q does not begin with verb and object", err)
		}
	}
	if err := errnoError(int(syscall.EIO)); errors.Is(err, verbs.ErrInvalid) || !errors.Is(err, syscall.EIO) {
		t.Errorf("EIO is %v", err)
	}
}
