-- Distributes the tables of triskele over the workers of a Citus cluster, by owner: the rows of one owner lie together.
-- Run it once on the coordinator, as the owner of the tables, after a first `triskele doctor` has made them and while
-- no instance runs. See docs/scale.md for what it changes and what was tested.
BEGIN;

-- The journal has a trigger that refuses updates and deletions; it looks at the row alone, so it is safe on a shard.
SET LOCAL citus.enable_unsafe_triggers TO on;

-- What is true of the whole database is read together with the rows of an owner.
SELECT create_reference_table('triskele.meta'::regclass);

SELECT create_distributed_table('triskele.owners'::regclass, 'owner', colocate_with => 'none');

-- Every other table with an owner, those that refer to another one last. Users, keys and sessions stay here.
SELECT create_distributed_table(format('triskele.%I', name)::regclass, 'owner', colocate_with => 'triskele.owners')
FROM (
    SELECT c.relname AS name, EXISTS (SELECT FROM pg_constraint WHERE conrelid = c.oid AND contype = 'f') AS refers
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'triskele'::regnamespace AND c.relkind = 'r' AND a.attname = 'owner'
    AND c.relname <> 'owners'
    ORDER BY refers, name
) AS owned;

-- Citus does not pass set_config() on to the workers, where the policies would then see no owner and no row. Every
-- statement names its owner itself; the policies, a second guard, are given up on these tables.
DO $$
DECLARE owned regclass;
BEGIN
    FOR owned IN
        SELECT c.oid FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'triskele'::regnamespace AND c.relrowsecurity AND a.attname = 'owner'
    LOOP
        EXECUTE format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY', owned);
        EXECUTE format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY', owned);
    END LOOP;
END $$;

COMMIT;
