package transport

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"google.golang.org/protobuf/proto"
)

// A frame is the length of its body (4 bytes, big endian), the body's CRC-32C
// (4 bytes) and the body. An empty body is a beat: a sign of life.
const frameHeader = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// beat is the frame with an empty body, whose checksum is zero.
var beat = make([]byte, frameHeader)

// appendFrame appends body as a frame.
func appendFrame(buf, body []byte) []byte {
	start := len(buf)
	buf = append(buf, beat...)
	buf = append(buf, body...)
	seal(buf[start:])
	return buf
}

// appendMessage appends m as a frame.
func appendMessage(buf []byte, m proto.Message) ([]byte, error) {
	start := len(buf)
	buf, err := proto.MarshalOptions{}.MarshalAppend(append(buf, beat...), m)
	if err != nil {
		return buf[:start], err
	}
	seal(buf[start:])
	return buf, nil
}

// seal fills in the header of a frame whose body is in place.
func seal(frame []byte) {
	body := frame[frameHeader:]
	binary.BigEndian.PutUint32(frame, uint32(len(body)))
	binary.BigEndian.PutUint32(frame[4:], crc32.Checksum(body, castagnoli))
}

// readFrame reads one frame's body, into buf where that is large enough. The
// length is checked before memory is taken for it. io.EOF means that the
// connection ended between two frames.
func readFrame(r io.Reader, limit int, buf []byte) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[:])
	if uint64(n) > uint64(limit) {
		return nil, fmt.Errorf("%w: a frame of %d bytes arrived, the limit is %d", ErrTooLarge, n, limit)
	}
	if int(n) > cap(buf) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if sum := crc32.Checksum(buf, castagnoli); sum != binary.BigEndian.Uint32(header[4:]) {
		return nil, fmt.Errorf("%w: checksum mismatch", ErrBadFrame)
	}
	return buf, nil
}
