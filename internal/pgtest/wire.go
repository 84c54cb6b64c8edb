package pgtest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Exec runs statements on a database and returns the rows of all of them, values as
// text. It speaks as much of the protocol as that needs
// (https://www.postgresql.org/docs/current/protocol-message-formats.html), so that
// this package needs no driver.
func (s *Server) Exec(database, statements string) ([][]string, error) {
	conn, err := net.DialTimeout("tcp", s.Address(), startLimit)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(startLimit))
	c := &wire{conn: conn, reader: bufio.NewReader(conn)}
	if err := c.startup(database); err != nil {
		return nil, err
	}
	return c.query(statements)
}

type wire struct {
	conn   net.Conn
	reader *bufio.Reader
}

func (c *wire) startup(database string) error {
	const protocol3 = 3 << 16
	body := binary.BigEndian.AppendUint32(nil, protocol3)
	for _, word := range []string{"user", "postgres", "database", database, ""} {
		body = append(append(body, word...), 0)
	}
	message := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
	if _, err := c.conn.Write(append(message, body...)); err != nil {
		return err
	}
	_, err := c.untilReady()
	return err
}

func (c *wire) query(statements string) ([][]string, error) {
	message := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(len(statements)+5))
	message = append(append(message, statements...), 0)
	if _, err := c.conn.Write(message); err != nil {
		return nil, err
	}
	return c.untilReady()
}

// untilReady reads until the server waits for the next query.
func (c *wire) untilReady() (rows [][]string, refused error) {
	for {
		var head [5]byte
		if _, err := io.ReadFull(c.reader, head[:]); err != nil {
			if refused != nil {
				return nil, refused
			}
			return nil, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(c.reader, body); err != nil {
			return nil, err
		}
		switch head[0] {
		case 'D':
			rows = append(rows, readRow(body))
		case 'E':
			refused = readError(body)
		case 'Z':
			return rows, refused
		}
	}
}

// readRow reads a DataRow: the number of values, then each behind its length.
func readRow(body []byte) []string {
	row := make([]string, binary.BigEndian.Uint16(body))
	body = body[2:]
	for i := range row {
		size := int32(binary.BigEndian.Uint32(body))
		body = body[4:]
		if size > 0 {
			row[i], body = string(body[:size]), body[size:]
		}
	}
	return row
}

// readError reads an ErrorResponse: fields, each a letter and a text.
func readError(body []byte) error {
	var code, message string
	for _, field := range strings.Split(string(body), "\x00") {
		switch {
		case strings.HasPrefix(field, "C"):
			code = field[1:]
		case strings.HasPrefix(field, "M"):
			message = field[1:]
		}
	}
	return fmt.Errorf("%s (SQLSTATE %s)", message, code)
}
