package wire

import (
	"encoding/binary"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const sizeofTimespec = int(unsafe.Sizeof(unix.Timespec{}))

// receiveTime returns the monotonic time of a kernel timestamp (SCM_TIMESTAMPNS) that was
// read at now; now if it is malformed or in the future.
func receiveTime(now time.Time, b []byte) time.Time {
	if len(b) < sizeofTimespec {
		return now
	}
	sec, nsec := int64(int32(nativeUint32(b))), int64(int32(nativeUint32(b[4:])))
	if sizeofTimespec == 16 {
		sec, nsec = int64(binary.NativeEndian.Uint64(b)), int64(binary.NativeEndian.Uint64(b[8:]))
	}
	// The age is a difference of wall clocks; the result is monotonic.
	return now.Add(-max(0, now.Round(0).Sub(time.Unix(sec, nsec))))
}

func nativeUint32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
