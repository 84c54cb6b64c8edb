package pgstore

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idemd/idemd/internal/store/storetest"
)

func TestDaemonsThatStartTogetherMigrateOnce(t *testing.T) {
	server := postgres.Server(t)
	database := server.Database(t, "")
	together(4, func(int) {
		s, err := Open(t.Context(), Options{DSN: server.DSN(database), Migrate: true})
		if err != nil {
			t.Errorf("Open: %v", err)
			return
		}
		_ = s.Close()
	})
	rows := must(t, server, database, "SELECT count(*), count(DISTINCT version_id) FROM "+versionTable)
	if rows[0][0] != rows[0][1] {
		t.Errorf("%s migrations were applied, %s different ones", rows[0][0], rows[0][1])
	}
}

func TestAnEmptyDatabaseIsRefusedWithWhatToDo(t *testing.T) {
	server := postgres.Server(t)
	_, err := Open(t.Context(), Options{DSN: server.DSN(server.Database(t, ""))})
	if err == nil || !strings.Contains(err.Error(), "idemd migrate") {
		t.Errorf("Open says %v", err)
	}
}

// A deployment goes one daemon at a time, and may be taken back: the last program's daemons
// start on the next one's schema, as long as that only adds.
func TestASchemaOfANewerProgramIsTakenWhereItSaysSo(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	must(t, server, database, "INSERT INTO "+versionTable+" (version_id, is_applied) VALUES (9999, true)")
	for _, migrate := range []bool{false, true} {
		s, err := Open(t.Context(), Options{DSN: server.DSN(database), Migrate: migrate})
		if err != nil {
			t.Fatalf("migrate %v: %v", migrate, err)
		}
		settle(t, s, storetest.Reserve(storetest.At(fmt.Sprint("migrate ", migrate)), 1))
		_ = s.Close()
	}
}

func TestASchemaThatNeedsANewerProgramIsRefused(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	must(t, server, database, "INSERT INTO "+versionTable+" (version_id, is_applied) VALUES (9999, true)")
	must(t, server, database, "CREATE OR REPLACE FUNCTION idemd.oldest_program() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 9998::bigint'")
	for _, migrate := range []bool{false, true} {
		_, err := Open(t.Context(), Options{DSN: server.DSN(database), Migrate: migrate})
		if err == nil || !strings.Contains(err.Error(), "9998") {
			t.Errorf("migrate %v: Open says %v", migrate, err)
		}
	}
}

func TestWhoMayNotCreateSchemasCanMigrateOneThatIsThere(t *testing.T) {
	server := postgres.Server(t)
	database := server.Database(t, "")
	role := "limited_" + database
	must(t, server, database, fmt.Sprintf("CREATE ROLE %[1]s LOGIN; CREATE SCHEMA idemd AUTHORIZATION %[1]s", role))
	dsn := strings.Replace(server.DSN(database), "postgres@", role+"@", 1)
	if err := Migrate(t.Context(), dsn); err != nil {
		t.Error(err)
	}
	must(t, server, database, "DROP SCHEMA idemd CASCADE; DROP ROLE "+role)
}

var update = flag.Bool("update", false, "write golden files anew")

// TestTheStoredFormIsTheOneInTheGoldenFile guards what other versions of the program
// find in the database: whoever changes it must write a migration.
func TestTheStoredFormIsTheOneInTheGoldenFile(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	var got bytes.Buffer
	for _, query := range []string{
		`SELECT 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'not null' ELSE 'null' END,
			'storage ' || a.attstorage::text, COALESCE('collate ' || l.collname, ''), COALESCE('default ' || pg_get_expr(d.adbin, d.adrelid), '')
		 FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
		 LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
		 WHERE c.relnamespace = 'idemd'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND c.relname NOT LIKE 'schema_%'
		 ORDER BY c.relname, a.attnum`,
		`SELECT 'index', indexdef FROM pg_indexes WHERE schemaname = 'idemd' AND tablename NOT LIKE 'schema_%' ORDER BY indexname`,
		`SELECT 'options', relname, reloptions::text FROM pg_class WHERE relnamespace = 'idemd'::regnamespace AND reloptions IS NOT NULL ORDER BY relname`,
		`SELECT 'function', p.oid::regprocedure::text, pg_get_function_result(p.oid), provolatile FROM pg_proc AS p
		 WHERE pronamespace = 'idemd'::regnamespace ORDER BY 2`,
		`SELECT 'table', relname FROM pg_class WHERE relnamespace = 'idemd'::regnamespace AND relkind = 'r' ORDER BY relname`,
	} {
		for _, row := range must(t, server, database, query) {
			fmt.Fprintln(&got, strings.Join(strings.Fields(strings.Join(row, " ")), " "))
		}
	}
	path := filepath.Join("testdata", "schema.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the schema is\n%s\nthe golden file says\n%s\n(after a migration: go test -run Golden -update)", got.Bytes(), want)
	}
}
